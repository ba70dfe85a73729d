READ = {
"FIRST_READ": """
Both networks with more parameters have the same number of them, and yet the study tells them apart: the experts help, and the wide MLPs do not. So it is not the number of parameters alone that counts here, but that different tokens use different ones. The wide network was best with the lowest of its four learning rates, so a lower one might still serve it better.
""",
"LIVE_READ": """
The difference has the sign of the study's, and here it is larger. These trainings are much shorter than those of the study, so one reading is that experts learn faster at first, and that the dense network makes up for a part of it later. The live trainings do not test it, but they let us look inside.
""",
"USE_READ": """
From an equal start the shares are more even with the loss of balance than without it. The advantage at the start is the hard case. Without the loss of balance the first expert keeps nearly everything, because an expert without tokens gets no gradient, neither for itself nor through its gate. The loss of balance has a gradient for all probabilities, so it brings tokens back to the others, although with this weight the shares are not yet equal at the end of so short a training.
""",
"SPECIALISE_READ": """
Compare each row with its shuffled control. Beyond chance, the kind of the thing explains about as much of the choice as the token does, and the place in the text hardly anything. So our experts divide subjects as well as words. This network was trained to tell the kinds apart, so its vectors differ by kind. In a large language model it was otherwise: the authors of Mixtral found that the choice follows syntax rather than the domain of a text.
""",
"VERDICT_READ": """
Say which control a gain refers to. Against the network of equal FLOPs, experts show what more parameters bring at the same work per token. Against the network of equal parameters, they show whether sparse use costs something. A colleague who compares with one of them alone can make the experts look good or bad, and neither number knows about time: with experts the step takes longer, so a fair third control is a dense network that trains as long.

* One expert has nearly all tokens → no loss of balance, or one that counts padding → log the largest share.
* The router's weights never change → the output is not multiplied by the gate → multiply, and test the gradient.

**What this lesson does not show.** Our networks have some hundred thousand parameters, four experts and one device. We did not test whether a router that chooses at random would gain as much, nor whether the loss of balance costs accuracy. In a large model, the saved FLOPs are the reason to use experts at all.
""",
}

import json
json.dump({
"@@FIRST@@": """All eight other loops end with the weights of the plain loop, and the largest difference is exactly zero. So another library's loop is no other training, if it gets the same settings. With seven micro-batches per epoch, so that the last group has only one, three of the eight differ: Accelerate, Lightning's automatic optimization and fastai. The Experiment shows by which rule.

All loops but fastai's add less than a millisecond to a batch, which is a few percent of a batch of eight photographs, and less of a usual one. Lightning was measured with its bar, logger and checkpoints off (lesson 19 has them on), and the steps of skorch and Ignite had to be written by hand. So neither the weights nor the time decides which loop to take. What does each loop do for you, and what does it hide?""",
"@@VERDICT@@": """So a loop is chosen by what you want to write yourself. What to mind was measured above.

| loop | take it when | mind that |
|---|---|---|
| plain PyTorch | the step itself is what you change | all five questions below are yours |
| Fabric | you keep your loop, and want several devices and precisions | the same, and it costs little |
| Accelerate | the same, beside Hugging Face's other tools | an incomplete last group counts half |
| Lightning | you want checkpoints, logs and callbacks without writing them | the same; misspelt hooks are silent |
| Lightning, manual | several optimizers, or a step of your own | clipping and accumulation are yours |
| transformers | you fine-tune its language models | it clips, shuffles and seeds by default |
| fastai | you want its recipes for images and tables | most overhead; a last group is carried over |
| skorch | you want scikit-learn's searches and pipelines | accumulation needs a step of your own |
| Ignite | you want events around a step of your own | the step is yours |

* ✅ **Change the loop when** your team has one already. The settings carry over exactly, and so do the lessons of this course.
* 🚧 **Costs** lines that can be wrong, or defaults that can surprise.
* ❗ **Traps**
  * Two loops differ from the first step on → order, seed or mode → compare the first batch, then the weights after one step.
  * They part at the end of the first epoch → the last group, or a validation that left eval mode on.
* **Combines with** all techniques of the course, because they are functions and arguments.

**What this lesson does not show.** Equal weights were checked on one thread of a CPU in fp32. On a GPU the sums of two runs may differ in their last digits, even with one loop. Several processes, mixed precision and resuming were not compared between libraries.""",
}, open("/root/n/l23/texts.json","w"))

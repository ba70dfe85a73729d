p='/root/n/l23/build.py'; s=open(p).read()
def r(a,b,n=1):
    global s
    if s.count(a)!=n and '"""' in a:
        a=a.replace('"""','\\"\\"\\"'); b=b.replace('"""','\\"\\"\\"')
    assert s.count(a)==n,(s.count(a),a)
    s=s.replace(a,b)
r('''from lesson_code.loops_and_engines.job import (
    FULL,
    INCOMPLETE,
    find_gap,
    make_photograph_jobs,
    measure_loss,
)
''','''from lesson_code.loops_and_engines.job import FULL, INCOMPLETE, find_gap, measure_loss
''')
r('''from course_utils import claim, load_config, load_data

plots.use_style()''','''from course_utils import claim, load_config, load_data
from lesson_code.loops_and_engines.job import make_photograph_jobs

plots.use_style()''')
r('''        (real,) = batch
        invented = self.generator(torch.randn(len(real), 2))
        for optimizer, loss in zip(self.optimizers(), self.list_losses(real, invented), strict=True):
''','''        invented = self.generator(torch.randn(len(batch[0]), 2))
        losses = self.list_losses(batch[0], invented)
        for optimizer, loss in zip(self.optimizers(), losses, strict=True):
''')
r('''    """A generator of points (N, 2), and a discriminator; both are stepped for each batch."""

    def __init__(self):
        super().__init__()
        self.generator''','''    def __init__(self):
        super().__init__()
        self.generator''')
r('''lit = LitPlateau(job)
quiet_trainer(accelerator="cpu", max_epochs=len(LOSSES)).fit(lit, job.make_loader())
print("learning''','''""")
md("plateau-run-md", """
An epoch whose loss is no lower than before should divide the learning rate by ten.
""")
code("plateau-run", """
lit = LitPlateau(job)
quiet_trainer(accelerator="cpu", max_epochs=len(LOSSES)).fit(lit, job.make_loader())
print("learning''')
r('''gaps_axis.plot(gaps, places + (0.12 if marker == "o" else -0.12), marker, color=colour, label=kind)''','''look = {"marker": marker, "ls": "", "color": colour, "label": kind}
    gaps_axis.plot(gaps, places + (0.12 if marker == "o" else -0.12), **look)''')
r('''print(f"Lightning adds {share:.1f} % to a batch of eight photographs ({stored.real_batch_ms:.0f} ms)")''','''print(f"Lightning adds {share:.1f} % to the {stored.real_batch_ms:.0f} ms of eight photographs")''')
r('''axis.set_title(f"Who does it? transformers does {hidden['transformers']} of {len(who)} actions for you")''','''axis.set_title(f"transformers' Trainer does {hidden['transformers']} of {len(who)} actions for you")''')
r('''            if callable(value) and name not in hooks and not name.startswith("_"):
                if name.startswith("on_") or difflib.get_close_matches(name, hooks, n=1, cutoff=0.8):
                    found.add(name)
''','''            near = name.startswith("on_") or difflib.get_close_matches(name, hooks, n=1, cutoff=0.8)
            if callable(value) and near and name not in hooks and not name.startswith("_"):
                found.add(name)
''')
r('''print(f"W&B {extras['extras']['wandb']}, offline: {offline['steps']} steps, files {offline['files']}")''','''print(f"W&B {extras['extras']['wandb']} offline: {offline['steps']} steps in {offline['files']}")''')
i=s.index('def add_blur(model):')
s=s[:i].rstrip()+'''
""")
md("composer-model-md", """
Two functions put BlurPool and stochastic depth into a network, by the names of its layers. The second one takes torchvision's layer.
""")
code("composer-model", """
'''+s[i:]
r(''' By default it would count epochs.''','')
r('''Read the rows as questions to ask of any loop. Is the gradient clipped once, after the group is complete, and after `unscale_`? Does the schedule count optimizer steps? Is the loss divided? Are the gradients cleared? Who goes back to train mode after a validation? The last column warns that the loss does not find these faults: some of them even have a *lower* one after two epochs. Comparing weights with a loop that you trust does find them.''','''Each row is a question to ask of any loop. Is the gradient clipped once, after the group is complete, and after `unscale_`? Does the schedule count optimizer steps? Is the loss divided? Are the gradients cleared? Who goes back to train mode after a validation? No loss of the last column looks broken, so a loss does not find these faults. Comparing weights with a loop that you trust does.''')
r('''An epoch of seven micro-batches has three groups of two, and one micro-batch alone. Its gradient can be divided by one, which is right, or by two, so that it counts half. Or it can stay until the next epoch brings a second one. We change the plain loop to these rules, and look which loop agrees with which.''','''An epoch of seven micro-batches has three groups of two, and one micro-batch alone. Its loss can be divided by one, which is right, or by two, so that it counts half. Or its gradient stays until the next epoch brings a second one. We change the plain loop to these rules, and look which loop follows which.''')
r('''Lightning's automatic optimization and Accelerate divide by the full number, so that the last group's gradient is half as large as it should be. transformers' Trainer looks at the group first and divides by its own size, as our own loops do.''','''Lightning's automatic optimization and Accelerate divide by the full number, so the last group counts half. transformers' Trainer looks at the group first, and divides by its own size.''')
r(''' What each rule means for the accuracy was not measured here. It is one step per epoch, so it matters in short epochs, and the simplest fix is a number of micro-batches that the accumulation divides, such as by `drop_last`.''',''' It is one step per epoch, so it matters in short epochs only. The simplest fix is a number of micro-batches without a rest.''')
r('''So an early stop, a schedule or a metric can be missing for months. Data modules have the same trap: `train_loader` instead of `train_dataloader`. Exercise 2 builds the check that finds such names in a second.''','''So a schedule or a metric can be missing for months. Data modules have the same trap, such as `train_loader` instead of `train_dataloader`. Exercise 2 finds such names.''')
r('''`course study` does what `train_all` does, and also writes each result to a file as soon as it ends. So even the death of the whole machine costs only the trainings that were running. A few rules come with every engine. What a training needs must be picklable, so no lambda, and no function from the notebook. Each worker uses one thread, or the workers slow each other down, and sums are taken in another order. And the numbers must depend on the seed alone, never on the worker.''','''`course study` does what `train_all` does, and writes each result to a file, so that even the death of the machine costs only the trainings that were running. Three rules hold for every engine. What a training needs must be picklable, so no lambda, and no function of the notebook. Each worker uses one thread, because sums of two threads differ in the last digits. And numbers depend on the seed alone, never on the worker.''')
r('''One training has one loop. A comparison has many trainings, and an *engine* spreads them: threads, processes, Dask, Ray or SLURM. `compare` takes any of them as `executor=`, as in lesson 09. What happens if a [worker](glossary.md#worker) is killed, for lack of memory for example? A pool of Python's processes breaks as a whole. So whoever collects the results must keep what has ended, and start the rest again:''','''A comparison has many trainings, and an *engine* spreads them: threads, processes, Dask, Ray or SLURM. `compare` takes any of them as `executor=`. What happens if a [worker](glossary.md#worker) is killed, such as for lack of memory? A pool of Python's processes breaks as a whole. So whoever collects the results must keep what has ended, and start the rest again:''')
r('''Each training writes its seed into a log when it begins. The first one kills its own process, as the kernel of the system does when memory ends. All results are then compared with those of one process that was never disturbed.''','''Each training writes a line into a log when it begins. The first one kills its own process. All results are then compared with those of one process that was never disturbed.''')
r('''There are two kinds of loops. In plain PyTorch, in Fabric and in Accelerate the loop is yours, and the library offers the same actions under names of its own, which also work on several devices and in mixed precision. Lightning's and transformers' Trainers own the loop, so that you give them a network, an optimizer and settings. Lightning's manual optimization lies between: the Trainer has the loop over batches, and your `training_step` has the rest.''','''There are two kinds of loops. In plain PyTorch, Fabric and Accelerate the loop is yours, and the library offers the same actions for several devices and precisions. Lightning's and transformers' Trainers own the loop, and you give them a network, an optimizer and settings. Lightning's manual optimization lies between: the Trainer has the loop over batches, and your `training_step` has the rest.''')
r('''Two cells of the table surprise. transformers' Trainer seeds PyTorch's generator, with 42 if you say nothing, so random layers do not continue from your own seed. And nothing switches the network to train mode in Lightning: the Trainer leaves the mode as it finds it, and a new network happens to be in train mode.''','''Two cells surprise. transformers' Trainer seeds PyTorch's generator, with 42 if you say nothing, so your own seed is lost. And nothing switches the network to train mode in Lightning: the Trainer leaves the mode as it finds it, and a new network happens to be in train mode.''')
r(''' The module `LitManual` of the comparison does so, and is on the card of the [Recipe](#Recipe) with a one-cycle schedule.''',''' The card of the [Recipe](#Recipe) does so, with a [one-cycle](glossary.md#one-cycle) schedule.''')
r('''Accelerate wraps the schedule, too. You call everything for every micro-batch, and `step()` and `zero_grad()` of the wrapped optimizer and schedule do nothing until the group is complete. Clipping is not wrapped this way, so it needs the question `sync_gradients`. With several processes the wrapped schedule takes as many steps as there are processes, each time.''','''Accelerate wraps the schedule, too. You call everything for every micro-batch, and `step()` and `zero_grad()` do nothing until the group is complete. Clipping needs the question `sync_gradients`. With several processes the wrapped schedule takes as many steps at a time as there are processes.''')
open(p,'w').write(s)
p='/root/n/l23/mktexts.py'; s=open(p).read()
r('''So a loop is chosen by what you want to write yourself. The reasons in the table are measured above, or are the library's own purpose.''','''So a loop is chosen by what you want to write yourself. What to mind was measured above.''')
r('''  * Two loops give other losses from the first step on → order of batches, seed or mode → compare the inputs of the first batch, then the weights after one step, then after two.
''','''  * Two loops differ from the first step on → order, seed or mode → compare the first batch, then the weights after one step.
''')
open(p,'w').write(s)
p='lesson_code/loops_and_engines/answers.py'; s=open(p).read()
r('''("if callable(value) and ", "if ", "on_ice''','''("if callable(value) and near", "if near", "on_ice''')
open(p,'w').write(s)

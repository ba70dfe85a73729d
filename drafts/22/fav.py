import torch, sys, time, numpy as np
torch.set_num_threads(1)
from functools import partial
from torch import nn
from torch.optim import AdamW
from course_utils import load_config, load_data
from course_utils.training import fit, warmup_cosine
from course_utils.models.text_small import TextSmall
from lesson_code.mixture_of_experts.experts import *
from lesson_code.mixture_of_experts.pretraining import *
config=load_config('quick',dataset='glosses').replace(model='text_small',epochs=3,batch_size=32,num_train=640,num_val=500,progress=False)
data=load_data(config)
SMALL=partial(TextSmall,width=64,depth=2)
def favour(model,balance):
    model=use_experts(model,balance=balance)
    for block,layer in zip(model.blocks,list_experts(model)):
        nn.init.constant_(block.norm2.bias,0.5)
        nn.init.constant_(layer.router.weight[0],0.1)
    return model
for b in (0.0,0.01,0.1):
    t=time.time()
    r=fit(config,data,seed=0,model=SMALL,model_transform=partial(favour,balance=b),make_optimizer=partial(AdamW,lr=4e-3),make_schedule=warmup_cosine,trainer={'callbacks':[ExpertUse()],'check_val_every_n_epoch':3},save=False)
    s=np.array(r.callback(ExpertUse).shares)
    print(b,round(r.metrics['val_accuracy'],3),[s[i,:,0].round(2).tolist() for i in (0,10,20,30,40,50,59)],s[-10:].mean(0).round(2).tolist(),f'{time.time()-t:.1f}s',flush=True)

import torch, sys
torch.set_num_threads(1)
from functools import partial
from torch.optim import AdamW
from course_utils import load_config, load_data
from course_utils.training import fit, warmup_cosine
from course_utils.models.text_small import TextSmall
from lesson_code.mixture_of_experts.experts import *
from lesson_code.mixture_of_experts.pretraining import *
config=load_config('quick',dataset='glosses').replace(model='text_small',epochs=3,batch_size=32,num_train=1000,num_val=500,progress=False)
data=load_data(config)
SMALL=partial(TextSmall,width=64,depth=2)
import time
for lr in (4e-3,8e-3):
  for n,b in ((4,0.01),(4,0.0),(8,0.0),(8,0.01)):
    t=time.time()
    r=fit(config,data,seed=0,model=SMALL,model_transform=partial(use_experts,num_experts=n,balance=b),make_optimizer=partial(AdamW,lr=lr),make_schedule=warmup_cosine,trainer={'callbacks':[ExpertUse()],'check_val_every_n_epoch':3},save=False)
    s=r.callback(ExpertUse).shares
    import numpy as np
    m=np.mean([x for x in s[-10:]],axis=0)
    print(lr,n,b,round(r.metrics['val_accuracy'],3),m.round(2).tolist(),f'{time.time()-t:.1f}s',flush=True)

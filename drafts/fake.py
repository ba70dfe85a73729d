"""Provisional numbers for the layout only; never committed."""
import json, numpy as np, sys
from pathlib import Path
from lesson_code.profiling.ladder import *
from lesson_code.profiling.ladder import name_loop, DATASETS, list_fixes, list_comparisons, NETWORKS
from lesson_code.profiling.overhead import FLAGS, PLAIN
from lesson_code.profiling.study import make_plain, fuse
from lesson_code.profiling.roofline import place_layers
r=np.random.default_rng(0)
gain={"no item":1.01,"batched copies":1.12,"foreach optimizer":1.05,"fused optimizer":1.12,"set to none":1.01,"channels last":1.05,"no bias":1.02,"bf16":1.3,"rare validation":1.4,"rare logging":1.003,"compile":1.08}
rows=[]
for kind in DATASETS:
    names={}
    for c in list_comparisons(kind):
        for f in (c.without,c.with_fix): names[name_loop(f)]=f
    for n,f in names.items():
        t=(110 if kind=="photographs" else 240)/np.prod([gain[x] for x in f] or [1])
        rows.append({"kind":kind,"loop":n,"ms":list(np.round(t*np.exp(r.normal(0,.01,20)),3))})
over=[{"loop":n,"step_us":list(np.round(60+(n!=PLAIN)*(130-8*k)+r.normal(0,2,20),1)),"rest_ms":list(np.round(20+r.normal(0,2,20),1))} for k,n in enumerate((PLAIN,*FLAGS))]
comp=[{"kind":k,"format":f,"batches":10,"compile_s":20.+5*i,"eager_ms":list(70+r.normal(0,1,20)),"compiled_ms":list((62 if f=="fp32" else 80)+r.normal(0,1,20)),"graphs":2,"differences":{"logits":1e-6,"gradients":2e-6},"call":"Compiled code was called once."} for i,k in enumerate(DATASETS) for f in ("fp32","bf16")]
layers={}
lens=None
for kind in DATASETS:
    m,b=make_plain(kind); layers[kind]=[l._asdict() for l in place_layers(m,b[0][0])]
    if kind=="texts": lens=[x.shape[1] for x,_ in b]
kernel='''#include <torch/csrc/inductor/cpp_prefix.h>
extern "C"  void kernel(const float* in_ptr0, const float* in_ptr1, float* out_ptr0)
{
    for(int64_t x0=0; x0<64; x0+=1)
    {
        auto tmp0 = in_ptr0[x0]; auto tmp2 = tmp0 + in_ptr1[x0]; auto tmp3 = max(tmp2, 0); out_ptr0[x0] = tmp3 * 0.5;
    }
}'''
about={"command":"x","made":"2026-11-29","hardware":{"cpu":"FAKE","cores":2,"gpu":None},"threads":2,"versions":{},"commit":None}
about|={"ladder":{"rounds":20,"steps":10,"batch_size":64,"num_val":500,"margin":.02,"networks":NETWORKS,"rows":rows},"overhead":{"rounds":20,"steps":400,"rows":over},"compiling":{"missing":"","rounds":20,"rows":comp,"lengths":lens,"graphs":{"None":[1]+[2]*9,"False":list(range(1,9))+[8,8],"True":[1]*10},"kernel":kernel},"roofline":{"limits":{"fp32":{"bytes_per_s":1.3e10,"flops_per_s":1.9e11},"bf16":{"bytes_per_s":1.3e10,"flops_per_s":5e11}},"layers":layers}}
about["page_faults"]={"missing":"","rounds":20,"tunables":"x","rows":[{"batch_size":b,"way":w,"ms":list(b*1.1*(1 if w!="as usual" else 1.02 if b==64 else 1.3)+r.normal(0,.5,20)),"faults":[b*40.0 if w=="as usual" else 3.0]*20} for b in (64,1024) for w in ("as usual","memory is kept")]}
Path("lesson_code/profiling/study.json").write_text(json.dumps(about))

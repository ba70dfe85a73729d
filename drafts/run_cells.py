"""Execute cells of the notebook in this process; show output, errors, times; save figures."""
import os,sys,json,time,traceback
os.environ.setdefault("COURSE_PROFILE","quick"); os.environ["COURSE_RUNS_DIR"]="/root/n/p19a/runs"
os.makedirs("/root/n/p19a/figs",exist_ok=True); os.makedirs("/root/n/p19a/cwd",exist_ok=True)
import matplotlib; matplotlib.use("Agg")
import matplotlib.pyplot as plt
import IPython.display as D, builtins
D.display=lambda *a,**k: print(*a)
import ast
nb=json.load(open('/root/n/wt_l19a/notebooks/19_profiling.ipynb'))
ns={"__name__":"__main__"}
cur=None
def show():
    for k,f in enumerate(plt.get_fignums()): plt.figure(f).savefig(f"/root/n/p19a/figs/{cur}_{k}.png",dpi=70)
    plt.close("all")
plt.show=show
stop=sys.argv[1] if len(sys.argv)>1 else None
os.chdir("/root/n/p19a/cwd")
import pandas as pd
pd.set_option("display.width",200); pd.set_option("display.max_columns",20)
T=time.time()
for c in nb['cells']:
    if c['cell_type']!='code': continue
    cur=c['id']; src=''.join(c['source']); t=time.time()
    print(f"--- {cur}",flush=True)
    try:
        tree=ast.parse(src); last=None
        if tree.body and isinstance(tree.body[-1],ast.Expr):
            last=ast.Expression(tree.body.pop().value)
        import linecache
        fn=f"<cell {cur}>"; linecache.cache[fn]=(len(src),None,src.splitlines(True),fn)
        exec(compile(tree,fn,"exec"),ns)
        if last is not None:
            v=eval(compile(last,fn,"eval"),ns)
            if v is not None: print(v)
    except BaseException as e:
        traceback.print_exc()
        if isinstance(e,KeyboardInterrupt): raise
    print(f"    [{time.time()-t:.1f} s]",flush=True)
    if cur==stop: break
print("total",time.time()-T)

# execute notebook quickly in-process and report times
import nbformat, time, sys, os, tempfile
from nbclient import NotebookClient
nb=nbformat.read('notebooks/23_loops_and_engines.ipynb',4)
for c in nb.cells:
    if 'parameters' in c.metadata.get('tags',[]) and len(sys.argv)>1: c.source=c.source.replace('PROFILE = ""',f'PROFILE = "{sys.argv[1]}"')
os.chdir(tempfile.mkdtemp())
cl=NotebookClient(nb,timeout=600,kernel_name='python3', allow_errors=True)
t0=time.time()
with cl.setup_kernel():
    for i,c in enumerate(nb.cells):
        if c.cell_type!='code': continue
        t=time.time(); 
        cl.execute_cell(c,i)
        dt=time.time()-t
        out=[]
        for o in c.outputs:
            if o.output_type=='stream': out.append(o.name[:3]+': '+o.text)
            elif o.output_type=='error': out.append('ERR '+o.ename+': '+o.evalue[:1500]+'\n'+'\n'.join(o.traceback)[-1500:])
            elif 'text/plain' in o.get('data',{}): out.append(o.data['text/plain'][:1500])
        print(f"[{c.id}] {dt:.1f}s\n  "+"\n  ".join(out)[:2500], flush=True)
print('total', time.time()-t0)
nbformat.write(nb,'/root/n/l23/ran.ipynb')

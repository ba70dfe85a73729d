import json,re
nb=json.load(open('/root/n/wt_l24/notebooks/24_deployment.ipynb'))
cells=nb['cells']; src=lambda c:''.join(c['source'])
d=[i for i,c in enumerate(cells) if c['cell_type']=='markdown' and '## Going deeper' in src(c)][0]
core=cells[:d]+[c for c in cells[d:] if '## Recap' in src(c)]
F=re.compile(r"<details>.*?</details>",re.S)
print(len(core), sum(len(F.sub('',src(c)).split()) for c in core if c['cell_type']=='markdown'))
code=[c for c in core if c['cell_type']=='code' and 'hide-input' not in c['metadata'].get('tags',[]) and 'card' not in c['metadata'].get('tags',[])]
print('visible',sum(src(c).count('\n')+1 for c in code))
for c in cells:
    if c['cell_type']=='code' and 'card' not in c['metadata'].get('tags',[]):
        n=src(c).count('\n')+1
        if n>26: print(c['id'],n)
L=sorted(src(c).count('\n')+1 for c in cells if c['cell_type']=='code' and 'card' not in c['metadata'].get('tags',[])); print('median',L[len(L)//2])
print('prose/code',sum(c['cell_type']=='markdown' for c in cells)/sum(c['cell_type']=='code' for c in cells))
print([(c['id'],src(c).count('\n')+1) for c in code])

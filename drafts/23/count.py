import json,re
nb=json.load(open('notebooks/23_loops_and_engines.ipynb')); cells=nb['cells']
i=next(k for k,c in enumerate(cells) if ''.join(c['source']).startswith('## Going deeper')); 
core=cells[:i]+[cells[-1]]
F=re.compile(r"<details>.*?</details>", re.S)
w=sum(len(F.sub('',''.join(c['source'])).split()) for c in core if c['cell_type']=='markdown')
code=[c for c in core if c['cell_type']=='code' and 'hide-input' not in c['metadata'].get('tags',[]) and 'card' not in c['metadata'].get('tags',[])]
n=[''.join(c['source']).count('\n')+1-2*('BEGIN SOL' in ''.join(c['source'])) for c in code]
allc=[''.join(c['source']).count('\n')+1 for c in cells if c['cell_type']=='code' and 'card' not in c['metadata'].get('tags',[])]
print(len(core),'cells',w,'words',sum(n),'lines', 'median', sorted(allc)[len(allc)//2], 'max visible', max(n), 'max', max(allc), 'ratio', sum(c['cell_type']=='markdown' for c in cells)/sum(c['cell_type']=='code' for c in cells))
for c in cells:
    s=''.join(c['source'])
    if c['cell_type']=='code' and s.count('\n')+1>20: print(c['id'], s.count('\n')+1, c['metadata'].get('tags'))
    if 'card' in c['metadata'].get('tags',[]): print(c['id'], sum(bool(l.strip()) for l in s.splitlines()), max(map(len,s.splitlines())))
for c in cells:
    if c['cell_type']=='code':
        for l in ''.join(c['source']).splitlines():
            if len(l)>100: print(c['id'], len(l))

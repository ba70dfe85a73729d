import json
CELLS=[]
def md(id, text, slide=None):
    CELLS.append(dict(cell_type="markdown", id=id, metadata=({"slideshow":{"slide_type":slide}} if slide else {}), source=text.strip("\n")))
def notes(id, text):
    md(id, "<details><summary>For the teacher</summary>\n\n"+text.strip()+"\n\n</details>", "notes")
def code(id, text, fold=False, tags=(), slide=None, check=False, nbg=None):
    m={}
    t=list(tags)
    if fold: t=["hide-input",*t]; m["cellView"]="form"; m["jupyter"]={"source_hidden":True}
    if check: t.append("nbval-check-output")
    if nbg: m["nbgrader"]=nbg
    if slide: m["slideshow"]={"slide_type":slide}
    if t: m["tags"]=t
    m=dict(sorted(m.items()))
    CELLS.append(dict(cell_type="code", execution_count=None, id=id, metadata=m, outputs=[], source=text.strip("\n")))
def answer(id, name, text):
    code(id, text, slide="skip", nbg=dict(grade=False,grade_id=name,locked=False,schema_version=3,solution=True,task=False))
def check(id, name, points):
    code(id, f"from lesson_code.profiling import checks\n\nchecks.check_{name}({name})", slide="skip", nbg=dict(grade=True,grade_id=f"check_{name}",locked=True,points=points,schema_version=3,solution=False,task=False))
def write(path, course):
    for c in CELLS: c["source"]=c["source"].splitlines(keepends=True)
    ids=[c["id"] for c in CELLS]; assert len(set(ids))==len(ids), [i for i in ids if ids.count(i)>1]
    nb=dict(cells=CELLS, metadata=dict(course=course, kernelspec=dict(display_name="Python 3 (ipykernel)",language="python",name="python3"), language_info=dict(file_extension=".py",mimetype="text/x-python",name="python",pygments_lexer="ipython3")), nbformat=4, nbformat_minor=5)
    open(path,"w").write(json.dumps(nb,indent=1,ensure_ascii=False)+"\n")

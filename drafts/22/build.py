import json, re
cells = []
def md(cid, text, slide=None):
    meta = {"slideshow": {"slide_type": slide}} if slide else {}
    cells.append({"cell_type": "markdown", "id": cid, "metadata": meta, "source": text.strip("\n").splitlines(True)})
def code(cid, text, *tags, fold=False, nb=None):
    meta = {}
    tags = list(tags)
    if fold:
        tags.append("hide-input"); meta |= {"cellView": "form", "jupyter": {"source_hidden": True}}
    if nb:
        name, kind = nb
        grade = kind == "check"
        meta["nbgrader"] = {"grade": grade, "grade_id": ("check_" if grade else "") + name, "locked": grade, "schema_version": 3, "solution": not grade, "task": False}
        if grade: meta["nbgrader"]["points"] = POINTS[name]
        meta["nbgrader"] = dict(sorted(meta["nbgrader"].items()))
        meta["slideshow"] = {"slide_type": "skip"}
    if tags: meta["tags"] = tags
    cells.append({"cell_type": "code", "execution_count": None, "id": cid, "metadata": meta, "outputs": [], "source": text.strip("\n").splitlines(True)})
POINTS = {"experts_experiment": 1, "list_dropped": 1, "find_balance": 2, "mix_experts": 3}
exec(open("/root/n/d22/cells.py").read())
course = {"budget_s": 90, "headline": HEADLINE, "key": "", "minutes": 90, "outputs": "", "question": "Do experts help?", "seam": "model", "technique": "mixture of experts, load balance, upcycling, expert parallel", "time_s": 0, "timing": True}
meta = {"course": course, "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}, "language_info": {"file_extension": ".py", "mimetype": "text/x-python", "name": "python", "pygments_lexer": "ipython3"}}
path = "/root/n/wt_l22/notebooks/22_mixture_of_experts.ipynb"
open(path, "w").write(json.dumps({"cells": cells, "metadata": meta, "nbformat": 4, "nbformat_minor": 5}, indent=1, ensure_ascii=False) + "\n")
core = []; deep = False
for c in cells:
    s = "".join(c["source"])
    if s.startswith("## Going deeper"): deep = True
    if s.startswith("## Recap"): deep = False
    if not deep: core.append((c, s))
words = sum(len(re.sub(r"<details>.*?</details>", "", s, flags=re.S).split()) for c, s in core if c["cell_type"] == "markdown")
lines = sum(s.count("\n") + 1 for c, s in core if c["cell_type"] == "code" and not {"hide-input", "card"} & set(c["metadata"].get("tags", [])))
nmd = sum(c["cell_type"] == "markdown" for c in cells)
print(len(cells), "cells; core", len(core), "words", words, "lines", lines, "md/code", round(nmd / (len(cells) - nmd), 2))

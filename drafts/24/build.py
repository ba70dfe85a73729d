import json, sys, re
from pathlib import Path
ROOT = Path("/root/n/wt_l24")
cells = []
def md(id, text, slide=None):
    meta = {"slideshow": {"slide_type": slide}} if slide else {}
    cells.append({"cell_type": "markdown", "id": id, "metadata": meta, "source": text.strip("\n")})
def code(id, text, tags=(), slide=None, hide=False, grade=None):
    meta = {}
    tags = list(tags)
    if hide:
        meta["cellView"] = "form"; meta["jupyter"] = {"source_hidden": True}; tags.append("hide-input")
    if grade: meta["nbgrader"] = grade
    if slide: meta["slideshow"] = {"slide_type": slide}
    if tags: meta["tags"] = tags
    cells.append({"cell_type": "code", "id": id, "metadata": meta, "source": text.strip("\n"), "outputs": [], "execution_count": None})
def solution(id, text, name):
    code(id, text, slide="skip", grade={"grade": False, "grade_id": name, "locked": False, "schema_version": 3, "solution": True, "task": False})
def check(id, name, points):
    code(id, f"from lesson_code.deployment import checks\n\nchecks.check_{name}({name})", slide="skip", grade={"grade": True, "grade_id": f"check_{name}", "locked": True, "points": points, "schema_version": 3, "solution": False, "task": False})

study_path = ROOT / "lesson_code/deployment/study.json"
sys.path.insert(0, str(ROOT))
N = {}
if study_path.is_file():
    from lesson_code.deployment.changes import Changes
    C = Changes(json.loads(study_path.read_text()))
    def pts(kind, change, metric="accuracy"):
        return 100 * C.difference(kind, change, metric).mean
    def iv(kind, change, metric="accuracy"):
        d = C.difference(kind, change, metric); return f"{100*d.low:+.1f} to {100*d.high:+.1f}".replace("-", "−")
    def mean(kind, change, metric="accuracy"):
        return 100 * C.values(kind, change, metric).mean()
else:
    pts = mean = lambda *a: 0.0
    iv = lambda *a: "?"
def iv2(kind, change, base):
    d = C.difference(kind, change, baseline=base); return f"{100*d.low:+.1f} to {100*d.high:+.1f}".replace("-", "−")
def f1(x): return f"{x:+.1f}".replace("-", "−")
def lost(kind, change): return f"{-pts(kind, change):.1f}"

exec(Path("/root/n/l24/cards.py").read_text())
exec(Path("/root/n/l24/content.py").read_text())

nb = {"cells": cells, "metadata": {"course": {
  "budget_s": 75,
  "headline": [{"claim": "photographs and texts: int8 costs less than one point"}],
  "key": "", "minutes": 90, "outputs": "", "question": "How do I serve a network smaller and faster without losing a point?",
  "seam": "model", "technique": "export, parity, folded BatchNorm, int8, a service", "time_s": 60, "timing": True},
  "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
  "language_info": {"file_extension": ".py", "mimetype": "text/x-python", "name": "python", "pygments_lexer": "ipython3"}},
  "nbformat": 4, "nbformat_minor": 5}
out = ROOT / "notebooks/24_deployment.ipynb"
if out.is_file():  # what executions wrote stays
    old = json.loads(out.read_text())
    for k in ("key", "outputs", "minutes", "time_s", "peak_mb"):
        if k in old["metadata"]["course"]: nb["metadata"]["course"][k] = old["metadata"]["course"][k]
    before = {c["id"]: c for c in old["cells"]}
    for c in cells:
        o = before.get(c["id"])
        if o and c["cell_type"] == "code" and "".join(o["source"]) == c["source"]:
            c["outputs"], c["execution_count"] = o["outputs"], o["execution_count"]
for c in cells:
    c["source"] = c["source"].splitlines(keepends=True)
out.write_text(json.dumps(nb, indent=1, ensure_ascii=False) + "\n")
print(len(cells), "cells")

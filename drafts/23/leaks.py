import sys
sys.path.insert(0,'.')
import tests.text.test_students_course as t
from pathlib import Path
import tempfile
from tests.text.offenders import list_lessons
r=t.release(list_lessons(), Path(tempfile.mkdtemp())/"student")
for l in t.find_leaks(t.read_texts(r), t.read_given()): print(l[:400]); print()

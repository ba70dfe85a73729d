"""What lesson 24 says of packages that are not in the lock: ONNX Runtime, torchao and FastAPI.

Only facts that do not depend on the machine's speed are kept: differences, equal answers, bytes,
statuses. The network is that of seed 0 of the study. In a folder of their own the packages change
nothing of the course's environment:

    uv pip install --no-deps --target build/extras onnx onnxscript onnx-ir onnxruntime flatbuffers \
        ml_dtypes protobuf torchao fastapi starlette annotated-doc opentelemetry-api \
        importlib_metadata zipp
    PYTHONPATH=.:build/extras .venv/bin/python lesson_code/deployment/study_extras.py --save
"""

import tempfile
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from torch import Tensor, nn
from torch.export import Dim

from course_tools.study.keep import keep
from lesson_code.deployment import study
from lesson_code.deployment.client import encode_photograph, list_bad_requests
from lesson_code.deployment.preprocessing import AS_TRAINED, list_image_faults
from lesson_code.deployment.quantized import count_file_bytes, quantize_convolutions
from lesson_code.deployment.service import Package, Refusal, Service

BATCH = ({0: Dim.DYNAMIC},)
PACKAGES = ("onnx", "onnxruntime", "onnxscript", "torchao", "fastapi")


def run_onnx(path: Path):
    """A function of the file, from inputs to logits."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path))
    (given,) = session.get_inputs()
    return lambda x: torch.from_numpy(session.run(None, {given.name: x.numpy()})[0])


def compare_onnx(model: nn.Module, inputs: list[Tensor], calibration: list[Tensor], judge) -> dict:
    """The network in ONNX Runtime, in fp32 and in int8."""
    from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Reader(CalibrationDataReader):
        def __init__(self, name: str):
            self.batches = iter([{name: batch.numpy()} for batch in calibration])

        def get_next(self) -> Any:
            return next(self.batches, None)

    with tempfile.TemporaryDirectory() as folder:
        plain, ready, small = (
            Path(folder, name) for name in ("plain.onnx", "ready.onnx", "small.onnx")
        )
        exported = torch.onnx.export(model, (inputs[0][:2],), dynamic_shapes=BATCH, verbose=False)
        exported.save(plain, external_data=False)
        name = exported.model.graph.inputs[0].name
        quant_pre_process(plain, ready, skip_symbolic_shape=True)
        quantize_static(ready, small, Reader(name), per_channel=True, weight_type=QuantType.QInt8)
        return {
            "ONNX Runtime, fp32": judge(run_onnx(plain)) | {"bytes": plain.stat().st_size},
            "ONNX Runtime, int8": judge(run_onnx(small)) | {"bytes": small.stat().st_size},
        }


def compare_torchao(model: nn.Module, inputs: list[Tensor], calibration: list[Tensor], judge):
    """torchao's int8 network, before it is exported and after its file is loaded."""
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
    from torchao.quantization.pt2e.quantizer.x86_inductor_quantizer import (
        X86InductorQuantizer,
        get_default_x86_inductor_quantization_config,
    )

    quantizer = X86InductorQuantizer()
    quantizer.set_global(get_default_x86_inductor_quantization_config())
    graph = torch.export.export(model, (inputs[0][:2],), dynamic_shapes=BATCH).module()
    watched = prepare_pt2e(graph, quantizer)
    for batch in calibration:
        watched(batch)
    small = convert_pt2e(watched)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "small.pt2")
        exported = torch.export.export(small, (inputs[0][:2],), dynamic_shapes=BATCH)
        torch.export.save(exported, path)
        loaded = torch.export.load(path).module()
        found = {"torchao": judge(small), "torchao, exported": judge(loaded)}
        found["torchao, exported"]["bytes"] = path.stat().st_size
    return found


def ask_fastapi(model: nn.Module, pixels: Tensor) -> dict[str, int]:
    """The status of each bad request, and of a good one, from the lesson's route."""
    from fastapi import FastAPI, HTTPException, Request
    from fastapi.concurrency import run_in_threadpool
    from fastapi.testclient import TestClient

    files = tuple(encode_photograph(photograph) for photograph in pixels[:4])
    with torch.inference_mode():
        logits = model(pixels[:4])
    serving = Service(Package(model, tuple("abcdefghij"), files, logits))
    app = FastAPI()

    @app.post("/predict")
    async def predict(request: Request):
        body = await request.body()
        kind = request.headers.get("content-type", "").partition(";")[0]
        try:
            with serving.enter():
                return await run_in_threadpool(serving.predict, body, kind)
        except Refusal as refusal:
            raise HTTPException(refusal.status, str(refusal)) from None

    requests = {name: x for name, x in list_bad_requests(pixels[0]).items() if name != "5 MB"}
    client = TestClient(app)
    found = {}
    for name, request in requests.items():
        headers = {"Content-Type": request.kind}
        found[name] = client.post("/predict", content=request.body, headers=headers).status_code
    return {
        "requests": len(requests),
        "same_status": sum(found[name] == request.status for name, request in requests.items()),
    }


def main(
    save: Annotated[bool, typer.Option(help="write the JSON file beside this one")] = False,
) -> None:
    """Compare all of them; print, and keep, what was found."""
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    data = study.load("photographs")
    model = study.train("photographs", 0)
    pixels = study.split_pixels(data)
    prepare = list_image_faults(data.mean, data.std)[AS_TRAINED]
    inputs = [prepare(batch).contiguous() for batch in pixels]
    calibration = [batch.contiguous() for batch in study.take_calibration(data)]
    targets = torch.from_numpy(data.val.targets)
    reference = study.answer(model, inputs)

    def judge(program) -> dict[str, float]:
        return study.judge(study.answer(program, inputs), targets, reference)

    ours = quantize_convolutions(model, calibration)
    found = {"fp32": judge(model) | {"bytes": count_file_bytes(model)}}
    found["torch.ao"] = judge(ours) | {"bytes": count_file_bytes(ours)}
    found |= compare_onnx(model, inputs, calibration, judge)
    found |= compare_torchao(model, inputs, calibration, judge)

    class FromPixels(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return model(prepare(x))

    fastapi = ask_fastapi(FromPixels().eval(), pixels[0].contiguous())
    for name, row in found.items():
        print(name, row)
    print(fastapi)
    if save:
        keep(
            Path(__file__).with_suffix(".json"),
            "lesson_code/deployment/study_extras.py --save",
            packages={name: version(name) for name in PACKAGES},
            programs=found,
            fastapi=fastapi,
        )


if __name__ == "__main__":
    typer.run(main)

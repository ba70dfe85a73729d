CARD_PYTORCH = '''
import copy

import torch
import torch.nn.functional as F
from torch import nn
from torchvision.transforms import v2


class Served(nn.Module):  # pixels (N, 3, H, W) uint8 in RGB -> logits (N, C)
    def __init__(self, net, mean, std, size):
        super().__init__()
        self.net, self.size = net, size
        self.register_buffer("mean", torch.tensor(mean).view(3, 1, 1))
        self.register_buffer("std", torch.tensor(std).view(3, 1, 1))

    def forward(self, pixels):
        x = F.interpolate(pixels.float(), self.size, mode="bicubic", antialias=True)
        return self.net((x.round().clamp(0, 255) / 255 - self.mean) / self.std)


def export_served(served, pixels, expected, path, tolerance=1e-3):
    changing = ({0: torch.export.Dim.DYNAMIC},)  # the batch size; H and W are fixed
    exported = torch.export.export(served.eval(), (pixels,), dynamic_shapes=changing)
    torch.export.save(exported, path)
    program = torch.export.load(path).module()
    for count in (1, len(pixels)):
        with torch.no_grad():
            off = (program(pixels[:count]) - expected[:count]).abs().max().item()
        if not off <= tolerance * max(1.0, expected.abs().max().item()):
            raise ValueError(f"{count} at once: logits differ by {off:.2g} from the validated ones")
    return program


device = "cuda" if torch.cuda.is_available() else "cpu"
mean, std = (0.49, 0.48, 0.45), (0.25, 0.24, 0.26)  # those of your training
net = nn.Sequential(nn.Flatten(), nn.Linear(3072, 10)).to(device)  # yours: trained
photographs = torch.randint(256, (16, 3, 32, 32)).to(torch.uint8)  # of your validation
validate = v2.Compose([v2.ToDtype(torch.float32, scale=True), v2.Normalize(mean, std)])
with torch.no_grad():
    expected = net.eval()(validate(photographs).to(device)).cpu()  # as your validation does
to_serve = Served(copy.deepcopy(net).cpu(), mean, std, (32, 32))
program = export_served(to_serve, photographs, expected, "served.pt2")
'''
CARD_LIGHTNING = '''
import lightning as L
import torch
from lightning.pytorch.demos.boring_classes import BoringModel, RandomDataset
from torch.utils.data import DataLoader


def load_bare(path, net, prefix):  # the network of a LightningModule, without Lightning
    state = torch.load(path, map_location="cpu", weights_only=True)["state_dict"]
    names = [name for name in state if name.startswith(prefix)]
    net.load_state_dict({name.removeprefix(prefix): state[name] for name in names}, strict=True)
    return net.eval()


def export_checked(net, inputs, expected, path, tolerance=1e-3):
    changing = ({0: torch.export.Dim.DYNAMIC},)
    torch.export.save(torch.export.export(net, (inputs,), dynamic_shapes=changing), path)
    program = torch.export.load(path).module()
    for count in (1, len(inputs)):
        with torch.no_grad():
            off = (program(inputs[:count]) - expected[:count]).abs().max().item()
        if not off <= tolerance * max(1.0, expected.abs().max().item()):
            raise ValueError(f"{count} at once: outputs differ by {off:.2g}")
    return program


lit = BoringModel()  # yours
loader = DataLoader(RandomDataset(32, 64), 16)  # yours
off = dict.fromkeys(("logger", "enable_progress_bar", "enable_model_summary"), False)
trainer = L.Trainer(max_epochs=1, limit_val_batches=0, enable_checkpointing=False, **off)
trainer.fit(lit, loader)
trainer.save_checkpoint("trained.ckpt")

inputs = next(iter(loader))
with torch.no_grad():
    expected = lit.eval().to("cpu")(inputs)
bare = load_bare("trained.ckpt", BoringModel().layer, prefix="layer.")  # yours: a new network
program = export_checked(bare, inputs, expected, "served.pt2")
'''

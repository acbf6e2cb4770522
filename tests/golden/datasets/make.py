"""Makes the files beside it: what NumPy, h5py and Pillow write, and what Pillow makes of pictures.

    python make.py        (numpy 2.4, h5py 3.16, Pillow 13.0)

numbers(dtype, shape) is known to the tests too: element i is (i * 37) % 101 - 20, for unsigned types without the - 20,
for bool its lowest bit.
"""
import os

import h5py
import numpy as np
from PIL import Image

HERE = os.path.dirname(os.path.abspath(__file__))


def path(name):
    return os.path.join(HERE, name)


def numbers(dtype, shape):
    n = np.arange(int(np.prod(shape))) * 37 % 101
    if np.dtype(dtype).kind == 'b':
        n = n & 1
    elif np.dtype(dtype).kind != 'u':
        n = n - 20
    return n.astype(dtype).reshape(shape)


TYPES = ['bool', 'int8', 'uint8', 'int16', 'uint16', 'int32', 'uint32', 'int64', 'uint64', 'float16', 'float32', 'float64']

np.save(path('c_order.npy'), numbers('float32', (4, 3, 2)))
np.save(path('fortran.npy'), np.asfortranarray(numbers('int16', (4, 3, 2))))
np.savez(path('stored.npz'), **{t: numbers(t, (5, 3)) for t in TYPES})
np.savez_compressed(path('deflated.npz'), **{t: numbers(t, (5, 3)) for t in TYPES})

with h5py.File(path('plain.h5'), 'w', libver='earliest') as f:
    for t in TYPES:
        f[t] = numbers(t, (5, 3))
    f['text'] = ['a', 'b', 'c', 'd', 'e']  # not read
    f.create_group('folder')['inside'] = numbers('float32', (5,))  # not read
    f['link'] = h5py.SoftLink('/float32')  # not followed
with h5py.File(path('packed.h5'), 'w', libver=('earliest', 'v108')) as f:
    f.create_dataset('image', data=numbers('uint8', (9, 4, 4, 3)), chunks=(2, 4, 4, 3), compression='gzip', shuffle=True)
    f.create_dataset('label', data=np.arange(9), chunks=(4,))
with h5py.File(path('big_endian.h5'), 'w') as f:
    f['x'] = numbers('float32', (5, 3)).astype('>f4')

rng = np.random.default_rng(1)
# Smooth colours with noise, so that JPEG has something to do in luma and chroma.
y, x = np.mgrid[0:37, 0:53]
picture = np.stack([128 + 100 * np.sin(x / 9), 128 + 90 * np.cos(y / 7), 2 * x + 3 * y], axis=2) + rng.normal(0, 12, (37, 53, 3))
picture = np.clip(picture, 0, 255).astype(np.uint8)
rgb = Image.fromarray(picture)
rgb.save(path('rgb.jpg'), quality=85)
rgb.save(path('rgb.png'))
rgb.convert('L').save(path('gray.png'))
rgb.convert('L').save(path('gray.jpg'), quality=90)
Image.fromarray(np.dstack([picture, np.full((37, 53), 77, np.uint8)])).save(path('alpha.png'))
rgb.quantize(32).save(path('palette.png'))
rgb.convert('CMYK').save(path('cmyk.jpg'), quality=85)
expected = {
    'rgb_jpg': np.asarray(Image.open(path('rgb.jpg')).convert('RGB')),
    'gray_jpg': np.asarray(Image.open(path('gray.jpg'))),
    'palette_png': np.asarray(Image.open(path('palette.png')).convert('RGB')),
    'rgb_png': picture,
    'gray_png': np.asarray(Image.open(path('gray.png'))),
    'down': np.asarray(rgb.resize((20, 11), Image.BILINEAR)),
    'up': np.asarray(rgb.resize((71, 64), Image.BILINEAR)),
    'mixed': np.asarray(rgb.resize((20, 64), Image.BILINEAR)),
}
np.savez_compressed(path('pictures.npz'), **expected)

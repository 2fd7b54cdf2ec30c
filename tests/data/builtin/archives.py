"""Small archives of images."""

import io
import tarfile

from PIL import Image


def tar(members, kind=tarfile.REGTYPE):
    """Return a gzipped tar archive of (name, content)."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w:gz", compresslevel=1) as archive:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size, info.type = len(content), kind
            archive.addfile(info, io.BytesIO(content))
    return raw.getvalue()


def jpeg(colour, size=(32, 32), mode="RGB"):
    raw = io.BytesIO()
    Image.new(mode, size, colour).save(raw, "JPEG", quality=100)
    return raw.getvalue()

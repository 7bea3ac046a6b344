"""What is compiled; pyproject.toml has everything else."""

from __future__ import annotations

from pathlib import Path

import numpy
from Cython.Build import cythonize
from setuptools import Extension, setup

PACKAGE = Path("src/headrace")
# A file of kernels has a `.pxd` of its name beside it; those that only tell of types and constants are not compiled.
SHARED = {"kinds", "hints", "layout", "records"}
SOURCES = sorted(
    path.with_suffix(".py")
    for path in PACKAGE.glob("*/*.pxd")
    if path.stem not in SHARED
    # Until all of them are ported.
    and path.with_suffix(".py").exists()
    and "\nimport cython\n" in path.with_suffix(".py").read_text()
)


def _extension(source: Path) -> Extension:
    return Extension(
        ".".join(source.relative_to("src").with_suffix("").parts),
        [str(source)],
        include_dirs=[numpy.get_include()],
        define_macros=[("NPY_NO_DEPRECATED_API", "NPY_2_0_API_VERSION")],
        extra_compile_args=["-O3", "-g0"],
    )


setup(
    ext_modules=cythonize(
        [_extension(source) for source in SOURCES],
        include_path=["src"],
        nthreads=2,
        build_dir="build/c",
        compiler_directives={
            "language_level": 3,
            "boundscheck": False,
            "wraparound": False,
            "initializedcheck": False,
            "cdivision": True,
            "infer_types": True,
            "freethreading_compatible": True,
        },
    ),
)

"""Compiles the kernels. pyproject.toml has all the rest."""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

sys.path.insert(0, str(Path(__file__).parent / "build_tools"))
import compiler
import kernels

_C_FILES = Path("build/c")


class BuildKernels(build_ext):
    """Turns changed kernels into C and compiles them, on all processors."""

    def run(self) -> None:
        """Compiles all kernels, or, beside their sources, those that are out of date."""
        os.chdir(kernels.ROOT)
        kernels.remove_leftovers(Path("src"), Path(self.build_lib))
        every = self.extensions
        if self.inplace:
            old = set(map(kernels.module_name, kernels.out_of_date()))
            self.extensions = [extension for extension in every if extension.name in old]
        if self.extensions:
            self.force = True  # What lies in build/lib was not asked.
            self.parallel = self.parallel or os.cpu_count()
            began = time.time()
            _write_c(self.extensions)
            compiler.choose()
            super().run()
            self._date(began)
        self.extensions = every

    def _date(self, began: float) -> None:
        """Makes what was made as old as the build's begin: a source that changed since may not be in it."""
        for extension in self.extensions:
            for made in (extension.sources[0], self.get_ext_fullpath(extension.name)):
                os.utime(made, (began, began))

    def build_extensions(self) -> None:
        """Compiles, with the compiler and the options of `compiler.py`."""
        compiler.set_up(self.compiler)
        for extension in self.extensions:
            extension.extra_compile_args = compiler.options(self.compiler.compiler_type)
        super().build_extensions()


def _write_c(extensions: list[Extension]) -> None:
    """Makes C files the sources of the extensions, and writes those that are out of date."""
    import numpy as np
    from Cython import __version__ as cython_version
    from Cython.Build import cythonize
    from Cython.Compiler import Errors, Options

    # C is made of NumPy's declarations too, and compiles only with the headers of that NumPy.
    c_files = _C_FILES / f"cython-{cython_version}-numpy-{np.__version__}"
    for extension in extensions:
        extension.include_dirs = [np.get_include()]
        extension.define_macros = [("NPY_NO_DEPRECATED_API", "NPY_2_0_API_VERSION")]
    Options.warning_errors = (
        True  # An annotation that Cython does not know would make a Python object, silently.
    )
    processes = 0
    if sys.platform == "linux":
        # Forked processes keep the setting above; on other systems a second processor starts anew.
        multiprocessing.set_start_method("fork", force=True)
        processes = os.cpu_count()
    try:
        made = cythonize(
            extensions,
            include_path=["src"],
            build_dir=str(c_files),
            force=_is_newer(Path("setup.py"), c_files),
            nthreads=processes,
            shared_utility_qualified_name=kernels.module_name(kernels.SHARED),
            compiler_directives={
                "language_level": 3,
                "boundscheck": False,
                "wraparound": False,
                "initializedcheck": False,
                "cdivision": True,
                "infer_types": True,
                "freethreading_compatible": True,
                "autotestdict": False,  # pytest finds the examples of docstrings itself.
            },
        )
    except Errors.CompileError as error:
        sys.exit(f"Cython refuses {error}: its reasons are above.")
    written = {extension.name: extension.sources for extension in made}
    for extension in extensions:
        extension.sources = written[extension.name]


def _is_newer(path: Path, folder: Path) -> bool:
    return any(path.stat().st_mtime > made.stat().st_mtime for made in folder.rglob("*.c"))


setup(
    cmdclass={"build_ext": BuildKernels},
    ext_modules=[
        Extension(kernels.module_name(source), [str(source.relative_to(kernels.ROOT))])
        for source in (*kernels.sources(), kernels.SHARED)
    ],
)

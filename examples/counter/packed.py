"""Makes a new project depend on the package that an author would get from a registry, instead of the copy that `shardmill
new` put into it. Used by examples/languages.py, with what release/sdks.py packs.
"""

import shlex
import shutil
import tarfile

from prove import replace

PACKAGE = "shardmill-processor"
# As docs/plugins.md has it.
WORLD = """package my:alerts;

world alerts {
    include shardmill:processor/stateful-plugin@0.1.0;
    import wasi:http/outgoing-handler@0.2.12;
}
"""


def depend(language, project, sdks):
    """Returns further environment of the build, and how the build commands change."""
    return {"rust": rust, "python": python, "javascript": javascript, "go": go}[language](project, sdks)


def rust(project, sdks):
    """As from crates.io: by version, and the crates unpacked where cargo looks first."""
    shutil.rmtree(project / "wit")
    replace(project / "Cargo.toml", ', path = "wit"', "")
    crates = project.parent / "crates"
    for crate in sdks.glob("*.crate"):
        with tarfile.open(crate) as packed:
            packed.extractall(crates, filter="data")
    patches = [f'{folder.name.rsplit("-", 1)[0]} = {{ path = "{folder}" }}\n' for folder in crates.iterdir()]
    manifest = project / "Cargo.toml"
    manifest.write_text(manifest.read_text() + "\n[patch.crates-io]\n" + "".join(patches))
    return {}, {}


def python(project, sdks):
    """With a world of the project's own, since that of the package cannot be changed."""
    shutil.rmtree(project / "wit")
    shutil.rmtree(project / "shardmill_processor")
    [wheel] = sdks.glob("*.whl")
    with (project / "requirements.txt").open("a") as requirements:
        requirements.write(f"{PACKAGE} @ {wheel.as_uri()}\n")
    (project / "world").mkdir()
    (project / "world/alerts.wit").write_text(WORLD)
    contract = '--wit-path "$(.venv/bin/python -m shardmill_processor)" --wit-path world'
    return {"VIRTUAL_ENV": str(project / ".venv")}, {
        "--wit-path wit": contract, "--world stateful-plugin": "--world my:alerts/alerts",
        # What is installed already stays.
        ".venv/bin/componentize-py": ".venv/bin/pip install --quiet -r requirements.txt && .venv/bin/componentize-py"}


def javascript(_project, _sdks):
    """Stays with its copy: npm drops a package that componentize-js needs when it changes a dependency of this project."""
    return {}, {}


def go(project, sdks):
    """By version, from a folder that serves as a proxy."""
    shutil.rmtree(project / "wit")
    module = project / "go.mod"
    module.write_text("".join(line for line in module.read_text().splitlines(True) if not line.startswith("replace ")))
    return {"GOPROXY": f"file://{shlex.quote(str(sdks / 'go'))}", "GONOSUMDB": "*", "GOFLAGS": "-mod=mod",
            "GOMODCACHE": str(project.parent / "modules")}, {}

"""Files for containers and systemd: as far as they can be checked without an engine."""

from __future__ import annotations

import configparser
import re
from pathlib import Path

import pytest

from momostream.serve.config import read_config

DEPLOY = Path(__file__).resolve().parents[2] / "docs" / "deploy"


def test_the_compose_file_names_what_is_there():
    yaml = pytest.importorskip("yaml", reason="the documentation tools bring it")
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    services = compose["services"]
    assert {"broker", "farm", "momostream"} == services.keys()
    for service in services.values():
        for volume in service.get("volumes", []):
            source = volume.partition(":")[0]
            assert source in compose["volumes"] or (DEPLOY / source).exists(), source
        if "build" in service:
            context = DEPLOY / service["build"]["context"]
            assert (context / service["build"]["dockerfile"]).exists()
    # Not open to other hosts unless someone asks for it.
    assert services["momostream"]["ports"] == ["127.0.0.1:8080:8080"]


def test_the_image_is_built_in_stages_and_runs_without_root():
    text = re.sub(r"\\\n", " ", (DEPLOY / "Dockerfile").read_text())
    steps = [line.split(maxsplit=1) for line in text.splitlines() if line.strip() and not line.startswith("#")]
    known = {"FROM", "WORKDIR", "COPY", "RUN", "ENV", "USER", "VOLUME", "EXPOSE", "HEALTHCHECK", "ENTRYPOINT", "CMD"}
    assert {name for name, _ in steps if not name.startswith("CMD")} <= known
    assert [name for name, _ in steps].count("FROM") == 2
    names = [name for name, _ in steps]
    assert names.index("USER") < names.index("ENTRYPOINT") and "HEALTHCHECK" in names
    root = DEPLOY.parents[1]
    copied = [rest.split()[:-1] for name, rest in steps if name == "COPY" and not rest.startswith("--from")]
    assert all((root / source).exists() for sources in copied for source in sources)


def test_the_unit_is_complete():
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str
    unit.read_string((DEPLOY / "momostream.service").read_text())
    assert unit.sections() == ["Unit", "Service", "Install"]
    assert unit["Service"]["ExecStart"].endswith("momostream serve /etc/momostream/farm.toml")
    assert unit["Service"]["User"] == "momostream"


def test_the_configuration_of_the_compose_file_is_right():
    farm = read_config(DEPLOY / "farm.toml")
    assert farm.feeds[0].source.startswith("mqtt://broker/")

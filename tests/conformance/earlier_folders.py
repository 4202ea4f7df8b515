"""Folders that earlier versions left."""

from __future__ import annotations

import tarfile
from pathlib import Path

from sqlalchemy import create_engine, text

from tests.fixtures.earlier.write import HERE, KEPT_ROOT


def unpack(root: Path, name: str) -> None:
    with tarfile.open(HERE / name) as tar:
        tar.extractall(root, filter="data")


def moved(url: str, root: Path) -> None:
    """Do what an operator does who moves the folder of the tables."""
    query = text("UPDATE dataflows SET folder = replace(folder, :old, :new)")
    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.begin() as connection:
        connection.execute(query, {"old": KEPT_ROOT, "new": str(root)})
    engine.dispose()

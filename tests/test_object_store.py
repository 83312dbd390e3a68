"""A failed export to an object store removes what it wrote; objects of other programs stay."""

import pytest
from formats.store import object_store, objects

from common import Probe, record, run


def test_a_failed_store_export_removes_only_its_own_objects(tmp_path, monkeypatch):
    from moto.s3.exceptions import S3AccessDeniedError
    from moto.s3.models import S3Backend

    path = tmp_path / "run.h5"
    with Probe() as probe:
        record(probe, "--out", path, "--shots", 10, "--samples", 500).succeeded()
    with object_store() as (settings, client):
        for name, value in settings.items():
            monkeypatch.setenv(name, value)
        probed = run("export", path, "s3://runs/none/0", "--format", "zarr", "--shots", 0)
        if "--features s3" in probed.stderr:
            pytest.skip("this program was built without object stores: cargo build --features s3, as make test does")
        for key in ("off/notes.txt", "off/link0/mine", "off/losses/mine", "off2/zarr.json"):
            client.put_object(Bucket="runs", Key=key, Body=b"mine")
        before, put, written = objects(client), S3Backend.put_object, []

        def refusing(self, bucket_name, key_name, *arguments, **options):
            if key_name.startswith("off/losses/"):
                raise S3AccessDeniedError
            written.append(key_name)
            return put(self, bucket_name, key_name, *arguments, **options)

        monkeypatch.setattr(S3Backend, "put_object", refusing)
        assert "cannot write" in run("export", path, "s3://runs/off", "--format", "zarr").refused()
        assert {"off/link0/zarr.json", "off/link1/rf/c/0/0/0"} <= set(written)
        assert objects(client) == before

"""An S3 object store on loopback."""

import contextlib
import urllib.request


@contextlib.contextmanager
def object_store():
    """Starts moto's S3 with a bucket `runs`; yields the environment variables for the program, and a client."""
    import boto3
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    # All moto servers of a process share their memory: remove what an earlier one held.
    urllib.request.urlopen(urllib.request.Request(f"{endpoint}/moto-api/reset", method="POST")).close()
    keys = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_REGION": "eu-west-1"}
    client = boto3.client(
        "s3",
        endpoint_url=endpoint,
        region_name="eu-west-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",
    )
    client.create_bucket(Bucket="runs", CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
    try:
        yield {"AWS_ENDPOINT_URL": endpoint, **keys}, client
    finally:
        server.stop()


def objects(client):
    """Returns the keys of all objects."""
    pages = client.get_paginator("list_objects_v2").paginate(Bucket="runs")
    return [entry["Key"] for page in pages for entry in page.get("Contents", [])]

"""Ed25519 signatures of audit files, over the whole file except the signature."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from whyformer.errors import WhyformerError
from whyformer.extras import extra
from whyformer.files import parse_json, write_whole
from whyformer.results.storage import AUDIT_FORMAT

ALGORITHM, SIGNATURE = "Ed25519", "signature"


def make_keys(path: str | Path) -> Path:
    """Create a key pair to sign audit files, in PEM files that openssl can read too.

    Args:
        path: The file of the private key, readable only by its owner. The public key is written to the same name with
            `.pub` appended: give it to whoever verifies.

    Returns:
        The file of the public key.

    Raises:
        WhyformerError: If one of the files exists, the folder does not, or `cryptography` is missing.

    Example:
        >>> import tempfile, whyformer
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     whyformer.make_keys(f"{folder}/audit.key").name
        'audit.key.pub'
    """
    private, public = Path(path), Path(f"{path}.pub")
    serialization, ed25519 = _library()
    key = ed25519.Ed25519PrivateKey.generate()
    plain = serialization.NoEncryption(), serialization.PublicFormat.SubjectPublicKeyInfo
    contents = {
        private: key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain[0]),
        public: key.public_key().public_bytes(serialization.Encoding.PEM, plain[1]),
    }
    for file in contents:
        if file.exists():
            raise WhyformerError(f"{str(file)!r} exists, and keys are never overwritten: name another file.")
    for file, content in contents.items():
        try:
            handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if file is private else 0o644)
        except OSError as error:
            raise WhyformerError(f"{str(file)!r} cannot be written: {error.strerror}.") from error
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
    return public


def sign(audit: str | Path, key: str | Path) -> Path:
    """Sign an audit file in place, so that anyone with the public key can verify that it is unchanged.

    Args:
        audit: The file, as written by `explanation.save("NAME.audit.json")`. An existing signature is replaced.
        key: The file of the private key, as written by `make_keys`.

    Returns:
        The file.

    Raises:
        WhyformerError: If it is not an audit file, the key cannot be read, or `cryptography` is missing.

    Example:
        >>> import tempfile, whyformer
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     public = whyformer.make_keys(f"{folder}/audit.key")
        ...     whyformer.explain("A wonderful film.", "mini-bert").save(f"{folder}/film.audit.json")
        ...     signed = whyformer.sign(f"{folder}/film.audit.json", f"{folder}/audit.key")
        ...     whyformer.verify(signed, key=public).checks[0].name
        'signature'
    """
    path, private = Path(audit), private_key(key)
    try:
        document = parse_json(path.read_bytes())
    except (OSError, ValueError) as error:
        raise WhyformerError(f"{str(path)!r} cannot be signed: {error}.") from error
    if not isinstance(document, dict) or document.get("format") != AUDIT_FORMAT:
        raise WhyformerError(f"{str(path)!r} is not an audit file: save the explanation as NAME.audit.json.")
    value = base64.b64encode(private.sign(canonical(document))).decode()
    signed = {**document, SIGNATURE: {"algorithm": ALGORITHM, "value": value}}
    write_whole(path, json.dumps(signed, indent=1).encode())
    return path


def is_signed_by(document: Mapping[str, Any], key: str | Path) -> bool:
    """Whether the signature of an audit file is valid for this public key and the whole file."""
    extra("cryptography", "sign")
    from cryptography.exceptions import InvalidSignature

    public, signature = public_key(key), document.get(SIGNATURE)
    match signature:
        case {"algorithm": "Ed25519", "value": str(value), **others} if not others:
            try:
                public.verify(base64.b64decode(value, validate=True), canonical(document))
            except (InvalidSignature, ValueError):
                return False
            return True
    return False


def canonical(document: Mapping[str, Any]) -> bytes:
    """The signed bytes: the document without its signature, with sorted keys and no spaces."""
    unsigned = {name: value for name, value in document.items() if name != SIGNATURE}
    return json.dumps(unsigned, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()


def private_key(path: str | Path) -> Any:
    """The private key in a PEM file."""
    serialization, ed25519 = _library()
    return _read_key(
        path, ed25519.Ed25519PrivateKey, lambda content: serialization.load_pem_private_key(content, password=None)
    )


def public_key(path: str | Path) -> Any:
    """The public key in a PEM file."""
    serialization, ed25519 = _library()
    return _read_key(path, ed25519.Ed25519PublicKey, serialization.load_pem_public_key)


def _read_key(path: str | Path, kind: Any, read: Any) -> Any:
    side = "private" if "Private" in kind.__name__ else "public"
    try:
        key = read(Path(path).read_bytes())
    except (OSError, ValueError, TypeError) as error:
        reason = getattr(error, "strerror", None) or "it is not a key in PEM"
        raise WhyformerError(f"No {side} key in {str(path)!r}: {reason}. `whyformer keygen` creates a pair.") from error
    if not isinstance(key, kind):
        raise WhyformerError(f"The key in {str(path)!r} is not {ALGORITHM}: `whyformer keygen` creates a pair.")
    return key


def _library() -> tuple[Any, Any]:
    primitives = "cryptography.hazmat.primitives"
    return extra(f"{primitives}.serialization", "sign"), extra(f"{primitives}.asymmetric.ed25519", "sign")

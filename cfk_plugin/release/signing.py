"""Signatures of files (Ed25519): who wrote a release, and that no byte of it has changed since."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from cfk_plugin.errors import SignatureError, WrongSignatureError, load_extra, quiet

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )

VERSION = 1
"""Version of the file of a signature."""

_Key = TypeVar("_Key")
# signed with the content, so that no signature made for another purpose fits
_MEANT_FOR = b"cfk_plugin signature 1\0"
_FORM = re.compile(rb"cfk-signature-%d ([0-9a-f]{16}) ([A-Za-z0-9+/]{86}==)\n" % VERSION)


def new_key(path: str | Path, passphrase: str | None = None) -> Path:
    """Make a pair of keys: the private one at `path`, readable by its owner alone, the public one
    beside it.
    """
    form, ed25519 = _cryptography()
    private = Path(path)
    public = _path_with_ending(private, ".pub")
    names_in_use = [file.name for file in (private, public) if os.path.lexists(file)]
    if names_in_use:
        raise SignatureError(
            f"{', '.join(names_in_use)}: is there already; a key is never overwritten, give"
            " another path"
        )
    encryption = form.NoEncryption()
    if passphrase:
        encryption = form.BestAvailableEncryption(passphrase.encode())
    key = ed25519.Ed25519PrivateKey.generate()
    private_bytes = key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, encryption)
    _create(private, private_bytes, 0o600)
    _create(
        public,
        key.public_key().public_bytes(form.Encoding.PEM, form.PublicFormat.SubjectPublicKeyInfo),
        0o644,
    )
    return public


def sign(path: str | Path, key: str | Path, passphrase: str | None = None) -> Path:
    """Sign the bytes of a file, and write the signature beside it."""
    private = _private(Path(key), passphrase)
    content = _read(Path(path))
    signature = base64.b64encode(private.sign(_MEANT_FOR + content))
    signature_path = _path_with_ending(Path(path), ".sig")
    with quiet(f"{signature_path.name}: cannot be written", SignatureError):
        maker = _name(private.public_key())
        signature_path.write_bytes(b"cfk-signature-%d %s %s\n" % (VERSION, maker, signature))
    return signature_path


def verify(path: str | Path, key: str | Path, signature: str | Path | None = None) -> bytes:
    """Return the bytes of a file if they are those that were signed; use only the returned
    bytes.
    """
    public = _public(Path(key))
    content = _read(Path(path))
    signature_path = _path_with_ending(Path(path), ".sig")
    if signature is not None:
        signature_path = Path(signature)
    if not signature_path.is_file():
        raise WrongSignatureError(
            f"{signature_path.name}: no such file; nothing shows that the holder of the key made it"
        )
    match = _FORM.fullmatch(_read(signature_path))
    if match is None:
        raise WrongSignatureError(f"{signature_path.name}: is no signature, or only a part of one")
    if match[1] != _name(public):
        raise WrongSignatureError(
            f"{signature_path.name}: signed with another key than {Path(key).name}"
        )
    signature_bytes = base64.b64decode(match[2])
    is_canonical = base64.b64encode(signature_bytes) == match[2]
    if not is_canonical or not _fits(public, signature_bytes, content):
        raise WrongSignatureError(
            f"{Path(path).name}: not what was signed; it has changed, or is another file"
        )
    return content


def _fits(public: Ed25519PublicKey, signature: bytes, content: bytes) -> bool:
    from cryptography.exceptions import InvalidSignature

    try:
        public.verify(signature, _MEANT_FOR + content)
    except InvalidSignature:
        return False
    return True


def _name(public: Ed25519PublicKey) -> bytes:
    return hashlib.sha256(public.public_bytes_raw()).hexdigest()[:16].encode()


def _private(path: Path, passphrase: str | None) -> Ed25519PrivateKey:
    form, ed25519 = _cryptography()
    content = _read(path)
    if b"PUBLIC KEY" in content:
        raise SignatureError(f"{path.name}: is a public key; sign with the private key")
    is_encrypted = b"ENCRYPTED" in content
    if is_encrypted and not passphrase:
        raise SignatureError(f"{path.name}: is encrypted; set CFK_SIGN_PASSPHRASE")
    if os.name == "posix" and stat.S_IMODE(path.stat().st_mode) & 0o077:
        raise SignatureError(f"{path.name}: others may read this private key; chmod 600 it")
    password = passphrase.encode() if passphrase and is_encrypted else None
    with quiet(f"{path.name}: no private key, or another passphrase", SignatureError):
        key = form.load_pem_private_key(content, password)
    private: Ed25519PrivateKey = _checked(path, key, ed25519.Ed25519PrivateKey)
    return private


def _public(path: Path) -> Ed25519PublicKey:
    form, ed25519 = _cryptography()
    content = _read(path)
    if b"PRIVATE" in content:
        raise SignatureError(
            f"{path.name}: is a private key; verify with the public one, {path.name}.pub"
        )
    with quiet(f"{path.name}: no public key", SignatureError):
        key = form.load_pem_public_key(content)
    public: Ed25519PublicKey = _checked(path, key, ed25519.Ed25519PublicKey)
    return public


def _checked(path: Path, key: object, kind: type[_Key]) -> _Key:
    if not isinstance(key, kind):
        raise SignatureError(f"{path.name}: not an Ed25519 key; make one with cfk sign --new-key")
    return key


def _cryptography() -> tuple[Any, Any]:
    load_extra("cryptography", "sign", "signatures need cryptography")
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ed25519

    return serialization, ed25519


def _path_with_ending(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)


def _read(path: Path) -> bytes:
    with quiet(f"{path.name}: cannot be read", SignatureError):
        return path.read_bytes()


def _create(path: Path, content: bytes, mode: int) -> None:
    """Create a file that does not exist yet, with its final mode from the start."""
    with (
        quiet(f"{path.name}: cannot be written", SignatureError),
        os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file,
    ):
        file.write(content)

"""The emulator's certificate authority.

It signs one certificate for this machine and discards its own key, so that no other certificate can be signed that the
emulator's clients would trust.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from pathlib import Path

import certifi
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from batchtrain import state_files
from batchtrain.emulator import trust
from batchtrain.emulator.trust import VARIABLES, Certificates

ALWAYS = ("localhost", "127.0.0.1", "::1")
"""Names in every certificate."""
LIFE, RENEWED_BEFORE = timedelta(days=365), timedelta(days=30)
CA_NAME = "batchtrain emulator, on this machine only"


def ensure(data_dir: Path, names: Iterable[str], environment: Mapping[str, str], now: datetime) -> Certificates:
    """The certificates of the last start if they have all names and last a month; otherwise a new authority's."""
    files = trust.of(data_dir)
    all_names = (*ALWAYS, *names)
    if not _serves(files, all_names, now):
        issue(data_dir, all_names, now)
    usual = _usual(files, environment)
    state_files.write_atomically(files.usual, usual)
    state_files.write_atomically(files.bundle, usual + files.ca.read_text(encoding="utf-8"))
    return files


def issue(data_dir: Path, names: Iterable[str], now: datetime) -> Certificates:
    """A new authority, and a certificate signed by it."""
    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    identifier = x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key())
    ca = (
        _begun(CA_NAME, CA_NAME, ca_key, now)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .add_extension(identifier, critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    server_certificate = (
        _begun("localhost", CA_NAME, key, now)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([_general(name) for name in dict.fromkeys(names)]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    files = trust.of(data_dir)
    files.ca.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    files.certificate.unlink(missing_ok=True)  # written last: if this file exists, the others are complete
    pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    secret = key.private_bytes(pem, form, serialization.NoEncryption())
    state_files.write_atomically(files.private_key, secret.decode())
    state_files.write_atomically(files.ca, ca.public_bytes(pem).decode())
    state_files.write_atomically(files.certificate, server_certificate.public_bytes(pem).decode())
    return files


def _serves(files: Certificates, names: Iterable[str], now: datetime) -> bool:
    try:
        certificate = x509.load_pem_x509_certificate(state_files.content(files.certificate))
        ca = x509.load_pem_x509_certificate(state_files.content(files.ca))
        certificate.verify_directly_issued_by(ca)
        key = serialization.load_pem_private_key(state_files.content(files.private_key), None)
        is_pair = key.public_key() == certificate.public_key()
        has = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (OSError, ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound):
        return False
    lasts = certificate.not_valid_after_utc - now >= RENEWED_BEFORE
    return is_pair and lasts and all(_general(name) in has for name in names)


def _usual(files: Certificates, environment: Mapping[str, str]) -> str:
    """The certificate authorities that are trusted in any case: the user's own file, or certifi's. If the variable
    names the emulator's bundle, the authorities of the previous start are used."""
    files_of_variables = [Path(path) for name in VARIABLES if (path := environment.get(name)) and Path(path).is_file()]
    own_bundles = [path for path in files_of_variables if files.bundle.exists() and files.bundle.samefile(path)]
    others = [path for path in files_of_variables if path not in own_bundles]
    if not others and own_bundles and files.usual.is_file():
        others = [files.usual]
    return (others[0] if others else Path(certifi.where())).read_text(encoding="utf-8", errors="replace")


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _begun(subject: str, issuer: str, key: ec.EllipticCurvePrivateKey, now: datetime) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + LIFE)
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    """The key usage of an authority (it signs certificates) or of a server (it signs connections)."""
    return x509.KeyUsage(
        digital_signature=not signs, content_commitment=False, key_encipherment=False, data_encipherment=False,
        key_agreement=False, key_cert_sign=signs, crl_sign=signs, encipher_only=False, decipher_only=False,
    )  # fmt: skip

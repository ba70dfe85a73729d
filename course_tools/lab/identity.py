"""Who may use the lab: whoever has its token, and no configuration can make that everybody."""

import binascii
import os

from jupyter_server.auth.identity import PasswordIdentityProvider
from traitlets import validate

__all__ = ["TokenProvider"]


class TokenProvider(PasswordIdentityProvider):
    """Jupyter's own provider, but an empty token in a user's configuration is replaced."""

    @validate("token")
    def _replace_empty(self, proposal: dict) -> str:
        if proposal["value"] or not self.need_token:  # without need there is a password
            return proposal["value"]
        self.token_generated = True  # so the server prints it, in its address
        return binascii.hexlify(os.urandom(24)).decode("ascii")

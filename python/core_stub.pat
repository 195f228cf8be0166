_core.Error:
    class Error(RuntimeError):
        \doc
        peer: int | None
        code: str


"""Models that turn texts into vectors: from a folder, or asked over HTTP."""

from toolcrib.search.embedders.base import Embedder, EmbeddingFailed
from toolcrib.search.embedders.folders import ModelFolder
from toolcrib.search.embedders.remote import ModelEndpoint

__all__ = ["Embedder", "EmbeddingFailed", "ModelEndpoint", "ModelFolder", "open_embedder"]


def open_embedder(model: ModelFolder | ModelEndpoint) -> Embedder:
    """The embedder of `model`; which kind a folder holds is seen from its files. May take a second.

    Raises:
        EmbeddingFailed: it cannot be used.
    """
    # All of them with numpy, which nobody needs who only says which model is meant.
    if isinstance(model, ModelEndpoint):
        from toolcrib.search.embedders.endpoint import EndpointEmbedder  # noqa: PLC0415  see above

        return EndpointEmbedder(model)
    if not model.path.is_dir():
        raise model.wrong("there is no such folder")
    from toolcrib.search.embedders.static import TENSORS, WEIGHTS, StaticEmbedder  # noqa: PLC0415  see above
    from toolcrib.search.embedders.transformer import GRAPHS, TransformerEmbedder  # noqa: PLC0415  see above

    # Some folders hold both, for other programs; the static one is what they are about.
    weights = model.file(*WEIGHTS)
    if weights is not None and model.tensors(weights) & {*TENSORS}:
        return StaticEmbedder.load(model)
    if model.file(*GRAPHS) is None:
        holds = "a model for torch, which is to be exported to ONNX" if weights is not None else "no model"
        raise model.wrong(f"it holds {holds}: `model.safetensors` of model2vec or `{'` or `'.join(GRAPHS)}` is needed")
    return TransformerEmbedder.load(model)

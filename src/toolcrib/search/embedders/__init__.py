"""Models that turn texts into vectors, from a folder or over HTTP."""

from toolcrib.search.embedders.folders import ModelFolder
from toolcrib.search.embedders.interface import Embedder, EmbeddingFailed, ModelEndpoint

__all__ = ["Embedder", "EmbeddingFailed", "ModelEndpoint", "ModelFolder", "open_embedder"]


def open_embedder(model: ModelFolder | ModelEndpoint) -> Embedder:
    """Open the embedder of `model`. The files of a folder decide its kind. May take a second.

    Raises:
        EmbeddingFailed: the model cannot be used.
    """
    # Imported late, because they need numpy, which a program that only reads the settings does not need.
    if isinstance(model, ModelEndpoint):
        from toolcrib.search.embedders.endpoint import EndpointEmbedder  # noqa: PLC0415  see above

        return EndpointEmbedder(model)
    if not model.path.is_dir():
        raise model.wrong("the folder does not exist")
    from toolcrib.search.embedders.static import TENSORS, WEIGHTS, StaticEmbedder  # noqa: PLC0415  see above
    from toolcrib.search.embedders.transformer import GRAPHS, TransformerEmbedder  # noqa: PLC0415  see above

    # Some folders have both, for other programs. The static model is then the main one.
    weights = model.file(*WEIGHTS)
    if weights is not None and model.tensors(weights) & {*TENSORS}:
        return StaticEmbedder.load(model)
    if weights is None and model.file(*GRAPHS) is None:
        holds = "a torch model, which must be saved as safetensors" if model.file("pytorch_model.bin") else "no model"
        raise model.wrong(f"it contains {holds}. It must contain `model.safetensors` or `{'` or `'.join(GRAPHS)}`")
    return TransformerEmbedder.load(model)

"""Word senses by self-attention: one vector of an ambiguous word becomes another in each sentence.

`disambiguate` says which sense a word has and which words decided it, with the embedding that comes with
headlights, with any callable that makes vectors of words, or with a Hugging Face model from a local folder.
"""

from headlights.senses._clusters import Senses, known_senses, known_words
from headlights.senses._disambiguate import Reading, disambiguate
from headlights.senses._embedding import WordVectors, builtin, learn_embedding
from headlights.senses._encoders import Context, ContextEncoder, Encoder, SelfAttention
from headlights.senses._evaluation import Evaluation, Labelled, WordScore, evaluate, labelled_sentences
from headlights.senses._hugging_face import HuggingFace, minilm
from headlights.senses._text import text
from headlights.senses._vectors import cosine

__all__ = [
    "Context",
    "ContextEncoder",
    "Encoder",
    "Evaluation",
    "HuggingFace",
    "Labelled",
    "Reading",
    "SelfAttention",
    "Senses",
    "WordScore",
    "WordVectors",
    "builtin",
    "cosine",
    "disambiguate",
    "evaluate",
    "known_senses",
    "known_words",
    "labelled_sentences",
    "learn_embedding",
    "minilm",
    "text",
]

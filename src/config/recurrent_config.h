#pragma once
// Recurrent language models.

#include <cstdint>
#include <string_view>

#include "config/embedding_config.h"
#include "config/model_fields.h"

namespace metaformer {

enum class RecurrentCell { lstm, gru };

struct RecurrentConfig {
  RecurrentCell cell = RecurrentCell::lstm;  // of the kind
  std::int64_t layers = 2;
  std::int64_t width = 128;
  std::int64_t context = 64;
  bool carry_state = false;
  double dropout = 0.0;
  EmbeddingConfig embedding = {.std = 0.5};  // no norm stands before the layers

  // Matrices of a layer that read its input, and that read its state.
  std::int64_t gates() const { return cell == RecurrentCell::lstm ? 4 : 3; }
};

struct LstmConfig : RecurrentConfig {
  static constexpr std::string_view kind = "lstm";
  static constexpr std::string_view summary = "long short-term memory (Hochreiter and Schmidhuber 1997)";
  LstmConfig() : RecurrentConfig{.cell = RecurrentCell::lstm} {}
};

struct GruConfig : RecurrentConfig {
  static constexpr std::string_view kind = "gru";
  static constexpr std::string_view summary = "gated recurrent units (Cho et al. 2014)";
  GruConfig() : RecurrentConfig{.cell = RecurrentCell::gru} {}
};

template <class Visitor>
void visit(Visitor& field, RecurrentConfig& c) {
  field("layers", c.layers, between(1, 1024), "recurrent layers");
  field("width", c.width, between(1, 65536), "width of embeddings and of hidden states");
  field("context", c.context, between(1, 1 << 20),
        "tokens of a segment, through which gradients flow (truncated back-propagation through time)");
  field("carry_state", c.carry_state,
        "batches read the text in order, and a segment starts from the state that the one before it ended with; else "
        "from zeros");
  field("dropout", c.dropout, from_to_below(0, 1),
        "on embeddings, between layers and before the output layer, not from token to token (Zaremba et al. 2014)");
  field("embedding", c.embedding, "embeddings of tokens");
}

}  // namespace metaformer

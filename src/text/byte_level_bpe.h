#pragma once
// A tokenizer of the library `tokenizers`: byte-level BPE, as GPT-2 and LLaMA 3 have it. The ids equal the
// library's without the special tokens that its post-processing adds; every text that is valid UTF-8 is restored.

#include "text/special_tokens.h"
#include "text/tokenizer_json.h"
#include "text/word_memo.h"

namespace metaformer {

class ByteLevelBpeTokenizer : public SubwordTokenizer {
 public:
  static constexpr std::int64_t largest_vocabulary = 1 << 24;

  // `file`: the content of tokenizer.json. `vocabulary`: at least so many ids, as the model's table of embeddings may
  // have more rows than the file has tokens; the others stand for nothing. Errors as read_tokenizer_json.
  ByteLevelBpeTokenizer(std::string file, std::int64_t vocabulary, const std::string& source);

  std::int64_t vocabulary_size() const override { return vocabulary_; }

  // May be called from several threads.
  std::vector<std::int32_t> encode(std::string_view text) const override;

  // A word reaches from white space to white space.
  bool begins_word(std::int32_t id, std::int32_t before) const override;

  // Text that a model generates need not be UTF-8.
  std::string decode(std::span<const std::int32_t> ids) const override;

  nlohmann::ordered_json to_json() const override;
  std::string token_name(std::int32_t id) const override;

  const std::string& file() const { return file_; }

 private:
  using Ids = std::vector<std::int32_t>;

  void encode_text(std::string_view text, WordMemo<Ids>& memo, Ids& ids) const;
  void cut(std::string_view text, std::size_t pattern, const std::function<void(std::string_view)>& use_word) const;
  Ids ids_of_word(std::string_view word) const;
  std::string_view bytes_of(std::int32_t id) const;

  std::string file_;
  ByteLevelBpe bpe_;
  std::int64_t vocabulary_;
  mutable WordMemoPool<Ids> memos_;
};

}  // namespace metaformer

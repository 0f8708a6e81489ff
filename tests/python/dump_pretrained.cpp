// What a model of a Hugging Face folder makes of tokens, and the folder that we write for it: for comparison with the
// library `transformers`.
//
//   dump_pretrained FOLDER IDS OUT
//
// IDS is a safetensors file with the tensor ids [b, c]. OUT gets logits.safetensors and the folder `exported`.
// Fails when what is read from `exported` is not what was read from FOLDER.

#include <iostream>

#include "base/error.h"
#include "base/files.h"
#include "config/writer.h"
#include "model/make_model.h"
#include "run/huggingface/model_folder.h"
#include "run/safetensors.h"
#include "text/symbol_tokenizers.h"

namespace metaformer {

static void require_same(const PretrainedModel& read, const PretrainedModel& again) {
  bool same = read.tensors.size() == again.tensors.size() && read.vocabulary == again.vocabulary &&
              config_to_json({.model = read.config}) == config_to_json({.model = again.config});
  for (std::size_t i = 0; i < read.tensors.size() && same; ++i)
    same = read.tensors[i].first == again.tensors[i].first && read.tensors[i].second.equal(again.tensors[i].second);
  if (!same) throw Error(ExitCode::failure, "what was exported does not read back as it was");
}

static void dump(const std::filesystem::path& folder, const std::filesystem::path& ids_file,
                 const std::filesystem::path& out) {
  auto read = read_huggingface(folder);
  ExperimentConfig config;
  config.model = read.config;
  const auto model = make_model(config, {.vocabulary = read.vocabulary});
  copy_by_name(read.tensors, named_state(*model), folder.string());
  const auto ids = from_safetensors(read_file(ids_file, 1 << 30, ExitCode::data), ids_file.string());
  const torch::NoGradGuard no_grad;
  const auto logits = model->evaluate({.ids_bc = ids.at(0).second});
  std::filesystem::create_directories(out);
  write_file_synced(out / "logits.safetensors", to_safetensors({{"logits", logits}}));
  const bool has_tokenizer = read.tokenizer != nullptr;
  const Codec codec{
      .tokenizer = has_tokenizer ? std::move(read.tokenizer) : std::make_unique<NumberTokenizer>(read.vocabulary),
      .labels = {}};
  export_model({.config = config, .tensors = read.tensors, .codec = codec}, ExportFormat::huggingface,
               out / "exported");
  const auto again = read_huggingface(out / "exported");
  if (has_tokenizer && again.tokenizer->to_json() != codec.tokenizer->to_json())
    throw Error(ExitCode::failure, "the tokenizer does not read back as it was");
  require_same(read, again);
}

}  // namespace metaformer

int main(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "usage: dump_pretrained FOLDER IDS OUT\n";
    return 2;
  }
  try {
    metaformer::dump(argv[1], argv[2], argv[3]);
  } catch (const metaformer::Error& error) {
    std::cerr << error.what() << "\n";
    return static_cast<int>(error.code());
  }
}

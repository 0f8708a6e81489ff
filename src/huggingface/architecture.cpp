#include "huggingface/architecture.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "base/error.h"

namespace metaformer {

namespace {

// Of several names for the same function the first is the one that is written.
const std::array<std::pair<std::string_view, ActivationConfig>, 7> activations = {
    {{"gelu", GeluConfig{}},
     {"gelu_new", GeluTanhConfig{}},
     {"gelu_pytorch_tanh", GeluTanhConfig{}},
     {"relu", ReluConfig{}},
     {"silu", SiluConfig{}},
     {"swish", SiluConfig{}},
     {"relu2", ReluSquaredConfig{}}}};

const std::string head = "lm_head.weight";

std::vector<TensorLink> all_links(const Architecture& architecture, const DescribedModel& model) {
  auto links = architecture.links(model);
  for (auto& link : links)
    for (auto& part : link.theirs) part.name = architecture.prefix() + part.name;
  if (!model.config.embedding.tie)
    links.push_back({"head.weight", {model.vocabulary, model.config.width}, {{head, model.vocabulary}}});
  return links;
}

}  // namespace

NamedTensors import_tensors(const Architecture& architecture, const DescribedModel& model, const NamedTensors& theirs,
                            const std::string& source) {
  NamedTensors named;
  for (const auto& [name, tensor] : theirs) {  // a model without its head is saved without prefix
    const bool is_whole = name.starts_with(architecture.prefix()) || name == head;
    named.emplace_back(is_whole ? name : architecture.prefix() + name, tensor);
  }
  TensorTable table(named, source);
  for (const auto& buffer : architecture.buffers()) table.drop(buffer);
  torch::Tensor tied_head_vd;  // may be stored beside the embeddings
  if (model.config.embedding.tie && table.contains(head))
    tied_head_vd = table.take(head, {model.vocabulary, model.config.width});
  auto ours = to_ours(all_links(architecture, model), table);
  if (tied_head_vd.defined() && !tied_head_vd.equal(ours.front().second))
    throw Error(ExitCode::data,
                fmt::format("{}: its {} is not the embeddings, and tie_word_embeddings is true", source, head));
  return ours;
}

NamedTensors export_tensors(const Architecture& architecture, const DescribedModel& model, const NamedTensors& ours,
                            const std::string& source) {
  TensorTable table(ours, source);
  return to_theirs(all_links(architecture, model), table);
}

std::vector<const Architecture*> architectures() { return {&gpt2(), &llama()}; }

std::string name_of(const ActivationConfig& activation) {
  const auto* silu = std::get_if<SiluConfig>(&activation);
  for (const auto& [known, candidate] : activations)
    if (candidate.index() == activation.index() && (silu == nullptr || silu->beta == 1)) return std::string(known);
  return "";
}

ActivationConfig read_activation(ConfigFile& file, const char* key, const std::string& fallback) {
  const auto name = file.text(key, fallback);
  for (const auto& [known, activation] : activations)
    if (known == name) return activation;
  file.refuse(key, "this program has no such activation");
}

}  // namespace metaformer

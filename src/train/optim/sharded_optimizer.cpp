#include "train/optim/sharded_optimizer.h"

#include <algorithm>
#include <map>

namespace metaformer {

namespace {

constexpr std::int64_t alignment = 16;  // of views in the buffer

}  // namespace

std::vector<Shard> shards_of(const ParameterBuffer& parameters, const TrainConfig& config, int size) {
  const auto total = parameters.values().numel();
  const auto border = [&](int rank) {
    if (rank == size) return total;
    const auto place = total * rank / size / alignment * alignment;
    if (!is<MuonConfig>(config.optimizer)) return place;
    auto nearest = total;  // border that cuts no view
    for (const auto& view : parameters.views())
      if (std::abs(view.offset - place) < std::abs(nearest - place)) nearest = view.offset;
    return nearest;
  };
  std::vector<Shard> shards;
  for (int rank = 0; rank < size; ++rank)
    shards.push_back({.first = border(rank), .count = border(rank + 1) - border(rank)});
  return shards;
}

ShardedOptimizer::ShardedOptimizer(ParameterBuffer& parameters, const TrainConfig& config, const GradientScale& scale,
                                   ProcessGroup& group)
    : parameters_(parameters),
      group_(group),
      shards_(shards_of(parameters, config, group.size())),
      shard_(parameters, own_shard().first, own_shard().count),
      own_(make_optimizer(shard_, config, scale)) {}

void ShardedOptimizer::step(const LearningRate& learning_rate) {
  own_->step(learning_rate);
  for (std::size_t rank = 0; rank < shards_.size(); ++rank)
    if (shards_[rank].count > 0)
      group_.broadcast(parameters_.values().narrow(0, shards_[rank].first, shards_[rank].count),
                       static_cast<int>(rank));
}

// The longest name, since that of one view may end like that of another.
const ParameterBuffer::View* ShardedOptimizer::view_of(const std::string& name) const {
  const ParameterBuffer::View* found = nullptr;
  for (const auto& view : parameters_.views())
    if (name.ends_with("." + view.name) && (found == nullptr || view.name.size() > found->name.size())) found = &view;
  return found;
}

NamedTensors ShardedOptimizer::state() const {
  std::vector<std::pair<std::string, std::vector<torch::Tensor>>> parts;
  std::map<std::string, std::size_t> places;
  for (const auto& of_rank : gather_tensors(group_, own_->state()))
    for (const auto& [name, tensor] : of_rank) {
      const auto [place, is_new] = places.try_emplace(name, parts.size());
      if (is_new) parts.push_back({name, {}});
      parts[place->second].second.push_back(tensor);
    }
  NamedTensors state;
  for (const auto& [name, tensors] : parts) {
    const auto& first = tensors.front();
    const auto* view = first.dim() == 0 ? nullptr : view_of(name);
    // Of a view that is not cut; or of all, such as the number of steps.
    const bool is_whole = view == nullptr || first.numel() == view->count;
    state.emplace_back(name, is_whole ? first : torch::cat(tensors).view(view->parameter.sizes()));
  }
  return state;
}

std::string ShardedOptimizer::first_not_finite() const {
  const auto names = group_.gather(own_->first_not_finite());
  const auto found = std::find_if(names.begin(), names.end(), [](const auto& name) { return !name.empty(); });
  return found == names.end() ? "" : *found;
}

void ShardedOptimizer::load(const NamedTensors& state) {
  const torch::NoGradGuard no_grad;
  for (auto& [own_name, target] : own_->state())
    for (const auto& [name, whole] : state) {
      if (name != own_name) continue;
      const auto* view = target.dim() == 0 ? nullptr : view_of(name);
      if (view == nullptr) {
        target.copy_(whole);
      } else {
        const auto first = std::max(own_shard().first, view->offset) - view->offset;
        target.copy_(whole.reshape({-1}).narrow(0, first, target.numel()).view(target.sizes()));
      }
    }
}

}  // namespace metaformer

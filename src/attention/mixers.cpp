#include "attention/mixers.h"

#include "attention/average_pooling.h"
#include "attention/controls.h"
#include "attention/lsh_options.h"
#include "attention/metric_options.h"
#include "attention/quadratic_options.h"
#include "attention/scaled_dot_product_options.h"
#include "base/error.h"

namespace metaformer {

static std::vector<MixerRow>& registered() {
  static std::vector<MixerRow> rows;
  return rows;
}

void register_mixer(const MixerRow& row) {
  std::erase_if(registered(), [&](const MixerRow& other) { return kind_of(other.defaults) == kind_of(row.defaults); });
  registered().push_back(row);
  register_mixer_options(row.defaults);
}

// The table: one row per mixer. In this order they are listed everywhere.
void register_mixers() {
  register_mixer(mixer_row<ScaledDotProductOptions>());
  register_mixer(mixer_row<QuadraticOptions>());
  register_mixer(mixer_row<MetricOptions>());
  register_mixer(mixer_row<LshOptions>());
  register_mixer(mixer_row<AveragePoolingOptions>());
  register_mixer(mixer_row<IdentityOptions>());
  register_mixer(mixer_row<NoneOptions>());
}

std::shared_ptr<Mixer> make_mixer(const MixerConfig& config, const MixerShape& shape) {
  for (const auto& row : registered())
    if (kind_of(row.defaults) == kind_of(config)) return row.make(config.options(), shape);
  throw Error(ExitCode::failure, fmt::format("no mixer '{}' is registered", kind_of(config)));
}

}  // namespace metaformer

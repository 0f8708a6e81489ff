// Compiled into tests that read configs and know no torch.
#include "support/before_tests.h"
#include "support/mixer_options.h"

namespace metaformer {

void before_tests() {
  register_mixer_options(ScaledDotProductOptions{});
  register_mixer_options(QuadraticOptions{});
  register_mixer_options(MetricOptions{});
  register_mixer_options(LshOptions{});
  register_mixer_options(AveragePoolingOptions{});
  register_mixer_options(IdentityOptions{});
  register_mixer_options(NoneOptions{});
}

}  // namespace metaformer

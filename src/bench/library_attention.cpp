#include "bench/library_attention.h"

#include <ATen/Context.h>
#include <c10/util/Exception.h>

namespace metaformer {

namespace {

// While it lives the library has this backend only.
class OnlyBackend {
 public:
  explicit OnlyBackend(at::SDPBackend backend)
      : cudnn_(context().userEnabledCuDNNSDP()),
        flash_(context().userEnabledFlashSDP()),
        efficient_(context().userEnabledMemEfficientSDP()),
        math_(context().userEnabledMathSDP()),
        overrideable_(context().userEnabledOverrideableSDP()) {
    set(backend == at::SDPBackend::cudnn_attention, backend == at::SDPBackend::flash_attention,
        backend == at::SDPBackend::efficient_attention, backend == at::SDPBackend::math, false);
  }
  OnlyBackend(const OnlyBackend&) = delete;
  OnlyBackend& operator=(const OnlyBackend&) = delete;
  ~OnlyBackend() { set(cudnn_, flash_, efficient_, math_, overrideable_); }

 private:
  static at::Context& context() { return at::globalContext(); }
  static void set(bool cudnn, bool flash, bool efficient, bool math, bool overrideable) {
    context().setSDPUseCuDNN(cudnn);
    context().setSDPUseFlash(flash);
    context().setSDPUseMemEfficient(efficient);
    context().setSDPUseMath(math);
    context().setSDPUseOverrideable(overrideable);
  }

  bool cudnn_, flash_, efficient_, math_, overrideable_;
};

// The library says why a backend is none for these inputs; here that is an answer.
class NoWarnings : public c10::WarningHandler {
 public:
  void process(const c10::Warning&) override {}
};

}  // namespace

bool library_can(const LibraryBackend& backend, const LibraryInputs& in) {
  NoWarnings silent;
  const c10::WarningUtils::WarningHandlerGuard without_warnings(&silent);
  const OnlyBackend only(backend.backend);
  try {
    const auto chosen = at::_fused_sdp_choice(in.q_bnck, in.k_bnck, in.value_bnck, {}, 0, in.causal, in.scale);
    return chosen == static_cast<std::int64_t>(backend.backend);
  } catch (const c10::Error&) {  // no backend at all
    return false;
  }
}

torch::Tensor library_attention(const LibraryBackend& backend, const LibraryInputs& in) {
  const OnlyBackend only(backend.backend);
  return at::scaled_dot_product_attention(in.q_bnck, in.k_bnck, in.value_bnck, {}, 0, in.causal, in.scale);
}

}  // namespace metaformer

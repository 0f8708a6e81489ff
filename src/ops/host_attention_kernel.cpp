#include "ops/host_attention_kernel.h"

#include "ops/host_attention_backward.h"
#include "ops/host_attention_forward.h"

namespace metaformer {

using namespace host_kernel;

namespace {

template <class Element, class Units, int Rows, int Vectors>
METAFORMER_INLINE void run(const HeadAttention& head, HeadWorkspace& room, bool backward) {
  if (backward)
    BackwardHead<Element, Units, Rows, Vectors>(head, room).run();
  else
    ForwardHead<Element, Units, Rows, Vectors>(head, room).run();
}

template <class Units, int Rows, int Vectors>
METAFORMER_INLINE void run_in_floats(const HeadAttention& head, HeadWorkspace& room, bool backward) {
  if (head.bf16)
    run<std::uint16_t, Units, Rows, Vectors>(head, room, backward);
  else
    run<float, Units, Rows, Vectors>(head, room, backward);
}

// Blocks as large as the registers of each instruction set hold.
#ifdef __x86_64__
__attribute__((target("arch=x86-64-v4"))) void run_avx512_bf16(const HeadAttention& head, HeadWorkspace& room,
                                                               bool backward) {
  run<std::uint16_t, Bf16Pairs, 8, 2>(head, room, backward);
}
__attribute__((target("arch=x86-64-v4"))) void run_avx512(const HeadAttention& head, HeadWorkspace& room,
                                                          bool backward) {
  run_in_floats<Avx512Floats, 8, 2>(head, room, backward);
}
__attribute__((target("arch=x86-64-v3"))) void run_avx2(const HeadAttention& head, HeadWorkspace& room, bool backward) {
  run_in_floats<Floats, 4, 1>(head, room, backward);
}
#endif
void run_plain(const HeadAttention& head, HeadWorkspace& room, bool backward) {
  run_in_floats<Floats, 2, 1>(head, room, backward);
}

void run_as(VectorCode code, const HeadAttention& head, HeadWorkspace& room, bool backward) {
#ifdef __x86_64__
  if (code == VectorCode::avx512_bf16 && head.bf16) return run_avx512_bf16(head, room, backward);
  if (code >= VectorCode::avx512) return run_avx512(head, room, backward);
  if (code == VectorCode::avx2) return run_avx2(head, room, backward);
#endif
  run_plain(head, room, backward);
}

VectorCode find_widest() {
#ifdef __x86_64__
  if (__builtin_cpu_supports("x86-64-v4"))
    return __builtin_cpu_supports("avx512bf16") ? VectorCode::avx512_bf16 : VectorCode::avx512;
  if (__builtin_cpu_supports("x86-64-v3")) return VectorCode::avx2;
#endif
  return VectorCode::plain;
}

}  // namespace

VectorCode widest_vector_code() {
  static const auto widest = find_widest();
  return widest;
}

void attend_forward(const HeadAttention& head, HeadWorkspace& room, VectorCode code) {
  run_as(code, head, room, false);
}
void attend_backward(const HeadAttention& head, HeadWorkspace& room, VectorCode code) {
  run_as(code, head, room, true);
}

}  // namespace metaformer

#include "attention/full_form.h"

#include "base/error.h"

namespace metaformer {

NamedTensors full_form_of(const NamedTensors& scaled_dot_product, std::int64_t heads) {
  torch::Tensor query_key_value, output;
  for (const auto& [name, tensor] : scaled_dot_product) {
    if (name == "query_key_value.weight")
      query_key_value = tensor;
    else if (name == "output.weight")
      output = tensor;
    else
      throw Error(ExitCode::usage,
                  "a form U cannot express the parameter " + name + " of scaled dot product attention");
  }
  const auto rows_3nkd = query_key_value.unflatten(0, {3, heads, -1});
  const auto form_ndd = torch::matmul(rows_3nkd[0].mT(), rows_3nkd[1]);
  return {{"projection.weight", rows_3nkd[2].flatten(0, 1)}, {"output.weight", output}, {"full_form", form_ndd}};
}

}  // namespace metaformer

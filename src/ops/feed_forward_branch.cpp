#include "ops/feed_forward_branch.h"

#include "ops/activation.h"
#include "ops/linear.h"
#include "ops/norms.h"
#include "ops/recompute.h"

namespace metaformer {

namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

std::optional<Tensor> if_defined(const Tensor& tensor) {
  return tensor.defined() ? std::optional(tensor) : std::nullopt;
}

Activated activated(const MlpConfig& config, const Tensor& x) { return activate_with_slopes(config.activation, x); }
Activated activated(const GatedConfig& config, const Tensor& x) { return gate_with_slopes(config.activation, x); }

// What is no input of the node in the graph.
struct Fixed {
  const NormConfig& norm;
  const FeedForwardConfig& feed_forward;
  Tensor up_hd;  // in the type of the products
  BranchEnd down;
};

class AddFeedForward : public torch::autograd::Function<AddFeedForward> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& x_bcd, const Tensor& gain_d,
                        const std::optional<Tensor>& norm_bias_d, const Tensor& up_hd,
                        const std::optional<Tensor>& up_bias_h, const Tensor& down_dh,
                        const std::optional<Tensor>& down_bias_d, const Fixed& fixed) {
    const auto normed = normalise(fixed.norm, x_bcd, gain_d, norm_bias_d);
    const auto n_rd = normed.y.view({-1, x_bcd.size(-1)}).to(fixed.up_hd.scalar_type());
    const auto [h_rh, slopes_rh] =
        std::visit([&](const auto& config) { return activated(config, linear_of_rows(n_rd, fixed.up_hd, up_bias_h)); },
                   fixed.feed_forward);
    context->save_for_backward({x_bcd, gain_d, norm_bias_d.value_or(Tensor()), normed.mean, normed.scale, n_rd, h_rh,
                                slopes_rh, fixed.up_hd, fixed.down.weight_di});
    auto& data = context->saved_data;
    data["needs_up"] = up_hd.requires_grad();
    data["needs_up_bias"] = up_bias_h.has_value() && up_bias_h->requires_grad();
    data["needs_down"] = down_dh.requires_grad();
    data["needs_down_bias"] = down_bias_d.has_value() && down_bias_d->requires_grad();
    fixed.down.keep_in(*context);
    return fixed.down.add_to(x_bcd, h_rh, down_bias_d);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    require_first_order("a feed-forward branch");
    const auto saved = context->get_saved_variables();
    const auto &x_bcd = saved[0], &gain_d = saved[1], &norm_bias_d = saved[2], &n_rd = saved[5], &h_rh = saved[6],
               &slopes_rh = saved[7], &up_hd = saved[8], &down_dh = saved[9];
    auto& data = context->saved_data;
    const auto dout_bcd = gradients[0].contiguous();
    const auto down = BranchEnd::kept_in(*context, down_dh)
                          .gradients(dout_bcd, h_rh,
                                     {.weight = data["needs_down"].toBool(), .bias = data["needs_down_bias"].toBool()});
    const auto up = linear_gradients(multiply_slopes(slopes_rh, down.dx_ri), n_rd, up_hd,
                                     {.weight = data["needs_up"].toBool(), .bias = data["needs_up_bias"].toBool()});
    auto norm = norm_gradients(up.dx_ri.to(torch::kFloat).view(x_bcd.sizes()), x_bcd,
                               {.y = {}, .mean = saved[3], .scale = saved[4]}, gain_d, if_defined(norm_bias_d));
    return {norm.dx.add_(dout_bcd),
            norm.dgain_d,
            norm.dbias_d,
            up.dweight_oi,
            up.dbias_o,
            down.dweight_oi,
            down.dbias_o,
            {}};
  }
};

}  // namespace

bool can_add_feed_forward(const Tensor& x_bcd, const FeedForwardBranch& branch) {
  return can_use_linear_parts(x_bcd, branch.up_hd) && can_use_linear_parts(x_bcd, branch.down_dh) &&
         x_bcd.scalar_type() == torch::kFloat && x_bcd.is_contiguous();
}

Tensor add_feed_forward(const Tensor& x_bcd, const FeedForwardBranch& branch, Pass& pass) {
  const Fixed fixed{.norm = branch.norm,
                    .feed_forward = branch.feed_forward,
                    .up_hd = weight_of_products(branch.up_hd),
                    .down = BranchEnd::of(branch.down_dh, branch.dropout, pass)};
  const c10::impl::ExcludeDispatchKeyGuard no_casts(c10::DispatchKey::AutocastCPU);
  return AddFeedForward::apply(x_bcd, branch.gain_d, if_defined(branch.norm_bias_d), branch.up_hd,
                               if_defined(branch.up_bias_h), branch.down_dh, if_defined(branch.down_bias_d), fixed);
}

}  // namespace metaformer

#pragma once
// Well-known networks as the work of one micro-batch. Their multiply-adds and parameters agree with
// the figures of their papers.

#include "launcher/published/network_work.h"

namespace lockstep::published {

struct ResNetShape {
  int depth = 50;  // 18, 34, 50, 101, 152
  int image = 224;
  int groups = 1, width = 64;  // ResNeXt-101 32x4d: 32, 4
  bool squeeze = false;        // squeeze-and-excitation
};
NetworkWork resnet(double batch, const ResNetShape& shape);
NetworkWork vgg(double batch, int depth);  // 16, 19
NetworkWork inception_v3(double batch);
NetworkWork mobile_net_v2(double batch);
NetworkWork efficient_net(double batch, int variant, int image);
struct ConvNextShape {
  double width = 128;  // tiny and small: 96; large: 192
  int blocks = 27;     // of the third stage; tiny: 9
};
NetworkWork convnext(double batch, const ConvNextShape& shape);

// The original U-Net: 572x572, convolutions without padding or normalisation.
NetworkWork unet(double batch);
// The networks that nnU-Net makes for brain tumours: patches of 128x128x128, or 192x160.
NetworkWork nn_unet(double batch, bool volumes);
// The detector with a ResNet-50 that ends at 38x38.
NetworkWork ssd300(double batch);
// The UNet of Stable Diffusion 2 at latents of 64x64. `with_encoders`: the encoders of image and
// text run too, which are not trained.
NetworkWork stable_diffusion(double batch, bool with_encoders);

struct TransformerShape {
  int layers = 0;
  double width = 0, inner = 0;      // inner 0: 4 x width
  double heads = 0, key_heads = 0;  // key_heads 0: as many
  double vocabulary = 0;
  bool tied_head = false;  // of Llama: it has the weights of the embedding, as GPT's always has
};
// BERT. `fill`: the share of tokens that is no padding, if padding is left out.
NetworkWork bert(
    double batch, double tokens, const TransformerShape& shape, double fill, bool answers);
NetworkWork gpt(
    double batch, double tokens, const TransformerShape& shape, bool biases, bool dropout);
NetworkWork llama(double batch, double tokens, const TransformerShape& shape);
NetworkWork vit(double batch, const TransformerShape& shape, int image, int patch);
// Transformer for translation; `tokens` of the target, in sentences of 28.
NetworkWork translation(double tokens, const TransformerShape& shape);
NetworkWork transformer_xl(double batch, bool large);

inline constexpr double kSentenceTokens = 28;

}  // namespace lockstep::published

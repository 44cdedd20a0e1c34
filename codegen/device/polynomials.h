#pragma once
// The polynomials of math.h, fitted by weighted least squares in the nodes of Chebyshev polynomials, with 60 digits, coefficient by
// coefficient: each is rounded before the later ones are fitted. Beside each is the largest error of the polynomial itself, relative
// to the leading term of what it corrects.

#include "codegen/device/floats.h"

namespace hindcast::device::polynomial {

/// (e^x - 1 - x) / x^2 for |x| < 0.3467.
HC_DEVICE float exp_tail(float x) {  // 2^-28.9
  return horner_by_pairs(x, x * x, 0.5f, 0.166666672f, 0.0416665077f, 0.0083331801f, 0.00139308651f, 0.000199696558f);
}
HC_DEVICE double exp_tail(double x) {  // 2^-59.2
  return horner_by_pairs(x, x * x, 0.5, 0.1666666666666667, 0.04166666666666667, 0.008333333333325888, 0.0013888888888882157,
                         0.00019841269875453378, 2.4801587330029272e-05, 2.7557254761116485e-06, 2.7557268901214665e-07,
                         2.510543967670148e-08, 2.091637807015425e-09);
}

/// (e^(y / 2) - 1 - y / 2) / y^2 for |y| < 0.6945.
HC_DEVICE float exp_of_half_tail(float y) {  // 2^-28.2 of e^(y / 2)
  return horner_by_pairs(y, y * y, 0.124999985f, 0.0208331496f, 0.00260426523f, 0.000261526264f, 2.15984383e-5f);
}
HC_DEVICE double exp_of_half_tail(double y) {  // 2^-57.9 of e^(y / 2)
  return horner_by_pairs(y, y * y, 0.12500000000000028, 0.020833333333333023, 0.0026041666666578953, 0.00026041666667156677,
                         2.1701388975994194e-5, 1.5500991810055056e-6, 9.6880828287156442e-8, 5.3823391099057339e-9, 2.6983040334182892e-10,
                         1.2208785789852818e-11);
}

/// (log((1 + s) / (1 - s)) - 2 s) / s^3 in z = s^2, for m = (1 + s) / (1 - s) between the square roots of 1/2 and 2.
HC_DEVICE float log_tail(float z) {  // 2^-25.6
  return horner(z, 0.666666687f, 0.399995506f, 0.285896391f, 0.22577107f);
}
HC_DEVICE double log_tail(double z) {  // 2^-54.8
  return horner_by_pairs(z, z * z, 0.6666666666666666, 0.40000000000005315, 0.28571428569175156, 0.22222222655202548, 0.181817737555563,
                         0.15387213105346637, 0.13246724857353948, 0.1328638560344723);
}

/// (log((1 + s) / (1 - s)) - 2 s - 2/3 s^3) / s^5 in z = s^2, for the same s.
HC_DEVICE float log_second_tail(float z) {  // 2^-22.6
  return horner(z, 0.400000155f, 0.285621583f, 0.23050648f);
}
HC_DEVICE double log_second_tail(double z) {  // 2^-51.7
  return horner_by_pairs(z, z * z, 0.4000000000000003, 0.2857142857133534, 0.22222222272052425, 0.18181808127922863, 0.15385582019003918,
                         0.132857500719008, 0.12915891943320615);
}

/// erf(x) / x - 1 in z = x^2, for |x| < 1.
HC_DEVICE float erf_factor(float z) {  // 2^-29.5
  return horner_by_pairs(z, z * z, 0.128379166f, -0.376126289f, 0.112836182f, -0.0268551242f, 0.0051907259f, -0.000803065428f,
                         7.91990169e-5f);
}
HC_DEVICE double erf_factor(double z) {  // 2^-56.8
  return horner_by_pairs(z, z * z, 0.1283791670955126, -0.37612638903183904, 0.11283791670960576, -0.02686617064604513,
                         0.0052239776340724945, -0.0008548327531646161, 0.00012055352774114191, -1.492617757978813e-05,
                         1.6471867905614611e-06, -1.6491030186722192e-07, 1.5899925043760325e-08, -1.8468845262562912e-09,
                         2.9725009918327755e-10, -3.536785429760196e-11);
}

/// -log(erfc(x)) for x from 1 to where erf(x) rounds to 1; the more exact the larger erfc(x) is.
HC_DEVICE float negative_log_erfc(float x) {  // 2^-35.3
  return horner_by_pairs(x, x * x, -0.000191478495f, 1.12959397f, 0.633190334f, 0.108449206f, -0.0252269208f, 0.0042112465f,
                         -0.000442638469f, 2.17931902e-5f);
}
HC_DEVICE double negative_log_erfc(double x) {  // 2^-59.4
  return horner_by_pairs(x, x * x, 1.8798437709715575e-07, 1.1283772467124984, 0.6366288685878172, 0.10274617119439403,
                         -0.019076020647421928, -0.00028359290412375193, 0.0017724441343586806, -0.0006441519087534921,
                         4.686017322644918e-05, 6.925667315298144e-05, -4.455478467036073e-05, 1.63468791573664e-05, -4.281343903167803e-06,
                         8.408311406523224e-07, -1.2412152857007786e-07, 1.343742850407303e-08, -1.0100296600254122e-09,
                         4.7158364435228434e-11, -1.0305267762232366e-12);
}

/// (1 + 2 x) e^(x^2) erfc(x) in q = (x - k) / (x + k), where k is erfc_center and x at least 0.
HC_DEVICE Pair<float> scaled_erfc(float q) {  // 2^-25.3
  return ordered_sum(1.27697837f, q * horner_by_pairs(q, q * q, -0.0927639902f, -0.166030735f, 0.164055631f, -0.0542098992f, -0.0080627026f,
                                                      0.00864769146f, 0.00132375106f, -0.00124494126f, -0.000412202062f));
}
HC_DEVICE Pair<double> scaled_erfc(double q) {  // 2^-54.1
  return ordered_sum(1.2329951186255526,
                     q * horner_by_pairs(q, q * q, -0.13962111684056286, 0.01537965210261492, 0.0680970542547332, -0.10103906603614846,
                                         0.09373283499695181, -0.06633036581477068, 0.03716751555968294, -0.016197734031020396,
                                         0.005031969783334042, -0.0007577734858985687, -0.00019925566716602942, 0.0001506226995019145,
                                         -2.4402593366850335e-05, -1.1225657204896998e-05, 5.716588813540033e-06, 3.0226028560257065e-07,
                                         -8.333844898782823e-07, 6.237016624966033e-08, 1.1400027651945701e-07, -7.916697180453367e-09,
                                         -1.3236044917682463e-08, -1.6542195319137565e-09));
}
HC_DEVICE float erfc_center(float) { return 2.0f; }
HC_DEVICE double erfc_center(double) { return 4.0; }

/// (1/2 - r) / t in q = (t - k) / (t + k), where r = e^(t^2 / 2) normal_cdf(-t), for t from 0 to where normal_cdf underflows. It is made
/// for r = 1/2 - t times this, in which near 0 nothing of its error is left. Fitted in all coefficients at once, the nodes weighted anew
/// until their errors were equal, then rounded one by one, the later ones fitted again.
template <class T>
inline constexpr T kNormalFallCenter = sizeof(T) == 4 ? T(4) : T(5);
HC_DEVICE float normal_fall(float q) {  // 2^-22.7 of r
  return horner_by_pairs(q, q * q, 0.101397343f, -0.160195261f, 0.0865009129f, -0.0374790058f, 0.0118368501f, -0.00199918495f,
                         -0.000254259125f, 0.000224484233f, -1.08845124e-5f, -2.36635351e-5f);
}
HC_DEVICE double normal_fall(double q) {  // 2^-51.8 of r
  return horner_by_pairs(q, q * q, 0.084616139004998744, -0.14054076695719508, 0.088635493527191592, -0.049244955697165672,
                         0.023497109787522091, -0.0092432592331482821, 0.002762205025226398, -0.00048816204375299249,
                         -3.1516972640547416e-5, 4.8571751255923132e-5, -9.6309001505276849e-6, -2.6468568313838311e-6,
                         1.5102862844390726e-6, 7.2614279575287305e-8, -1.9174323209925523e-7, 8.042450819130823e-9, 2.5416860461482009e-8,
                         -2.1133405355648767e-9, -3.7411307069696837e-9, 3.3003404719573773e-10, 5.748300299922213e-10,
                         -3.7410608000758103e-11, -6.5151774665471474e-11);
}

/// The same plus 1 / sqrt(2 pi), with a k of its own: fewer coefficients do, since its product with t never cancels to less than the
/// larger of r and t / sqrt(2 pi).
template <class T>
inline constexpr T kGateSlopeFallCenter = sizeof(T) == 4 ? T(4.5) : T(5);
HC_DEVICE float gate_slope_fall(float q) {  // 2^-26.7 of the larger of the two
  return horner_by_pairs(q, q * q, 0.491208196f, -0.149877816f, 0.0883913487f, -0.0442845486f, 0.018011136f, -0.00542769721f,
                         0.000893365301f, 0.000117325064f, -9.22989639e-5f);
}
HC_DEVICE double gate_slope_fall(double q) {  // 2^-54.7
  return horner_by_pairs(q, q * q, 0.48355841940643141, -0.14054076695719503, 0.088635493527193604, -0.049244955697171619,
                         0.023497109787451714, -0.009243259232967713, 0.0027622050263546808, -0.00048816204621948071, -3.151698268443548e-5,
                         4.8571769496885495e-5, -9.6308453887003727e-6, -2.6469366906610232e-6, 1.5100940279065302e-6,
                         7.2829498493180821e-8, -1.913008210515835e-7, 7.6847984898814099e-9, 2.4756919303577672e-8, -1.7611423132914612e-9,
                         -3.1322702178875368e-9, 1.4606631003434342e-10, 2.6412500995998855e-10);
}

/// (sin(x) - x) / x^3 in z = x^2, for |x| < 0.818.
HC_DEVICE float sin_tail(float z) {  // 2^-27.6
  return horner(z, -0.166666672f, 0.00833339151f, -0.000198578491f, 2.87600437e-6f);
}
HC_DEVICE double sin_tail(double z) {  // 2^-56.7
  return horner_by_pairs(z, z * z, -0.16666666666666666, 0.008333333333332945, -0.00019841269840801797, 2.7557318981459887e-06,
                         -2.5052046836507094e-08, 1.6051411056025993e-10, -7.25829440290841e-13);
}

/// (sin(x) / x - 1 + x^2 / 8) / x^2 in z = x^2, for |x| < 1.577. Fitted in all coefficients at once, then these were moved by ulps until
/// the largest error of sin_near and cos_near over all floats was smallest: it is more exact where rounding leaves it little room.
HC_DEVICE float sin_of_half_turn_rest(float z) {  // 2^-25.6 of sin(x)
  return horner(z, -0.0416666418f, 0.00833311677f, -0.000198110109f, 2.60591855e-6f);
}

/// (cos(x) - 1 + x^2 / 2) / x^4 in z = x^2, for |x| < 0.818.
HC_DEVICE float cos_tail(float z) {  // 2^-28.5
  return horner(z, 0.0416666642f, -0.00138882047f, 2.4527164e-5f);
}
HC_DEVICE double cos_tail(double z) {  // 2^-58.7
  return horner_by_pairs(z, z * z, 0.041666666666666664, -0.001388888888888792, 2.4801587300427124e-05, -2.755731862794533e-07,
                         2.087660787277688e-09, -1.1452762877310258e-11, 3.931392858037079e-14);
}

/// (tan(x) - x) / x^3 in z = x^2, for |x| < 0.818.
HC_DEVICE float tan_tail(float z) {  // 2^-26.7
  return horner_by_pairs(z, z * z, 0.333333343f, 0.133332923f, 0.0539719462f, 0.0218707453f, 0.0087184906f, 0.00428836374f, 5.44012146e-5f,
                         0.00180268311f);
}
HC_DEVICE double tan_tail(double z) {  // 2^-56.7
  return horner_by_pairs(z, z * z, 0.3333333333333333, 0.1333333333333386, 0.05396825396781196, 0.021869488553387995, 0.00886323514965351,
                         0.0035921333240888633, 0.0014557849156818228, 0.0005903521249107567, 0.0002375949059579917, 0.00010221028176494269,
                         2.5876278832983352e-05, 4.063322388492909e-05, -2.608135996819469e-05, 3.191739271704103e-05,
                         -1.5497008477967512e-05, 5.154809679246425e-06);
}

/// (atan(x) - x) / x^3 in z = x^2, for |x| <= 1.
HC_DEVICE float atan_tail(float z) {  // 2^-26.2
  return horner_by_pairs(z, z * z, -0.333333313f, 0.199997365f, -0.142786965f, 0.110353827f, -0.0866445303f, 0.0626786053f, -0.0360923596f,
                         0.0136486264f, -0.00242310297f);
}
HC_DEVICE double atan_tail(double z) {  // 2^-57.3
  return horner_by_pairs(z, z * z, -0.3333333333333333, 0.19999999999999213, -0.14285714285622594, 0.11111111106309356,
                         -0.09090908950442628, 0.07692305100933383, -0.06666634117402243, 0.05882059694250718, -0.05261191012410932,
                         0.04751808604011626, -0.04307320357670364, 0.038708507362337476, -0.03371877914178985, 0.02752497135960763,
                         -0.02019289826424472, 0.012718646745655739, -0.006552550345552223, 0.002612612800772389, -0.0007486661707308174,
                         0.00013627551560748072, -1.1780950436830095e-05);
}

/// (asin(x) - x) / x^3 in z = x^2, for |x| <= 1/2.
HC_DEVICE float asin_tail(float z) {  // 2^-26.8
  return horner_by_pairs(z, z * z, 0.166666657f, 0.0750015005f, 0.0445865616f, 0.0312209334f, 0.0166590009f, 0.0344147459f);
}
HC_DEVICE double asin_tail(double z) {  // 2^-56.0
  return horner_by_pairs(z, z * z, 0.16666666666666669, 0.07499999999998086, 0.04464285714684728, 0.030381944107183312,
                         0.022372174037335067, 0.017352369430104073, 0.013971532836223424, 0.011476251139926966, 0.010340817937457964,
                         0.005383925392498367, 0.017592396510470343, -0.015139158759273054, 0.028946838173403967);
}

}  // namespace hindcast::device::polynomial

// npm `oidc-provider` on loopback as an identity provider with step-up (RFC 9470), without pages: headers of the test
// say who signs in (x-test-sub), whether with a second factor (x-test-mfa: 1) and how many seconds ago (x-test-auth-age).
//
//   PORT=… CALLBACK=… AUDIENCE=… TURNPIKE_NODE_MODULES=… node oidc_provider.mjs

import { createRequire } from 'node:module';
import path from 'node:path';
import { pathToFileURL } from 'node:url';

const modules = process.env.TURNPIKE_NODE_MODULES;
const require = createRequire(path.join(modules, 'package.json'));
const { Provider, interactionPolicy } = await import(pathToFileURL(require.resolve('oidc-provider')).href);

const { PORT, CALLBACK, AUDIENCE } = process.env;
const issuer = `http://127.0.0.1:${PORT}`;
const PASSWORD = 'urn:svc:pwd';
const SECOND_FACTOR = 'urn:svc:mfa';

// Who asks for a second factor and has shown none signs in again.
const policy = interactionPolicy.base();
policy.get('login').checks.add(
  new interactionPolicy.Check('step_up', 'a second factor is wanted', 'login_required', (ctx) => {
    const wanted = (ctx.oidc.params.acr_values ?? '').split(' ');
    const { accountId, acr } = ctx.oidc.session;
    return wanted.includes(SECOND_FACTOR) && accountId && acr !== SECOND_FACTOR
      ? interactionPolicy.Check.REQUEST_PROMPT
      : interactionPolicy.Check.NO_NEED_TO_PROMPT;
  }),
);

const provider = new Provider(issuer, {
  clients: [
    {
      client_id: 'dash',
      token_endpoint_auth_method: 'none',
      application_type: 'native',
      redirect_uris: [CALLBACK],
      grant_types: ['authorization_code'],
      response_types: ['code'],
    },
  ],
  acrValues: [PASSWORD, SECOND_FACTOR],
  claims: { openid: ['sub', 'auth_time', 'acr', 'amr'] },
  features: {
    devInteractions: { enabled: false },
    resourceIndicators: {
      enabled: true,
      defaultResource: () => AUDIENCE,
      useGrantedResource: () => true,
      getResourceServerInfo: () => ({
        scope: 'dashboard',
        audience: AUDIENCE,
        accessTokenFormat: 'jwt',
        accessTokenTTL: 900,
        jwt: { sign: { alg: 'RS256' } },
      }),
    },
  },
  pkce: { required: () => true },
  interactions: { policy, url: (_ctx, interaction) => `/interaction/${interaction.uid}` },
  // The access token says how its owner signed in (RFC 9068, section 2.2.1).
  extraTokenClaims: async (ctx, token) => {
    const source = token.kind === 'AccessToken' && ctx.oidc.entities.AuthorizationCode;
    return source ? { acr: source.acr, amr: source.amr, auth_time: source.authTime } : undefined;
  },
  findAccount: async (_ctx, id) => ({ accountId: id, claims: async () => ({ sub: id }) }),
});

provider.use(async (ctx, next) => {
  if (!ctx.path.startsWith('/interaction/')) return next();
  const { prompt, session, params } = await provider.interactionDetails(ctx.req, ctx.res);
  const login = prompt.name === 'login';
  let result;
  if (login) {
    const second = ctx.get('x-test-mfa') === '1';
    result = {
      login: {
        accountId: ctx.get('x-test-sub'),
        acr: second ? SECOND_FACTOR : PASSWORD,
        amr: second ? ['pwd', 'hwk', 'mfa'] : ['pwd'],
        ts: Math.floor(Date.now() / 1000) - Number(ctx.get('x-test-auth-age') || 0),
      },
    };
  } else {
    const grant = new provider.Grant({ accountId: session.accountId, clientId: params.client_id });
    grant.addOIDCScope('openid');
    grant.addResourceScope(AUDIENCE, 'dashboard');
    result = { consent: { grantId: await grant.save() } };
  }
  return provider.interactionFinished(ctx.req, ctx.res, result, { mergeWithLastSubmission: !login });
});

provider.on('server_error', (_ctx, error) => console.error(error));
provider.on('grant.error', (_ctx, error) => console.error(error.error_detail ?? error.message));
provider.listen(Number(PORT), '127.0.0.1', () => console.log(`listens as ${issuer}`));

// A certified OpenID Connect provider for tests: anybody logs in by name, without a password. It prints its issuer.
//
// The argument is JSON: port (0: any), redirect_uris, groups by name, secret (null: a public client), is_in_token
// (whether groups are in ID tokens).

import {generateKeyPairSync} from "node:crypto";
import {createServer} from "node:http";
import {createRequire} from "node:module";
import {pathToFileURL} from "node:url";

const require = createRequire(`${process.cwd()}/`);
const {Provider} = await import(pathToFileURL(require.resolve("oidc-provider")));
const asked = JSON.parse(process.argv[2]);
const server = createServer();
const key = generateKeyPairSync("rsa", {modulusLength: 2048}).privateKey.export({format: "jwk"});  // another at each start

server.listen(asked.port, "127.0.0.1", () => {
  const issuer = `http://127.0.0.1:${server.address().port}`;
  const provider = new Provider(issuer, {
    clients: [{
      client_id: "offbeat", redirect_uris: asked.redirect_uris,
      ...(asked.secret ? {client_secret: asked.secret} : {token_endpoint_auth_method: "none"}),
    }],
    claims: {openid: ["sub"], groups: ["groups"]},
    conformIdTokenClaims: !asked.is_in_token,
    jwks: {keys: [{...key, use: "sig", alg: "RS256"}]},
    cookies: {keys: ["for tests"]},
    findAccount: (_, id) => ({accountId: id, claims: () => ({sub: id, groups: asked.groups[id] ?? []})}),
    // Nobody is asked to agree.
    loadExistingGrant: async ({oidc}) => {
      const grant = new oidc.provider.Grant({clientId: oidc.client.clientId, accountId: oidc.session.accountId});
      grant.addOIDCScope("openid groups");
      await grant.save();
      return grant;
    },
  });
  server.on("request", provider.callback());
  console.log(issuer);
});
